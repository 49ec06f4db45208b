"""A real Chromium, told what to do by DevTools messages over two pipes: no port, no driver.

Each step waits for Chromium's own answer or event; nothing here looks at a clock.
"""

import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium")
# As root it has no sandbox; without the others it looks for Google's hosts at every start.
_WORDS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", "--no-default-browser-check", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Chromium:
    """One browser with one tab. `console` has the errors of its page, `requests` what it asked."""

    def __init__(self) -> None:
        assert PROGRAM
        self._home = tempfile.mkdtemp(prefix="hpckit-chromium-")
        theirs, self._to = os.pipe()
        self._from, answers = os.pipe()
        # DevTools reads descriptor 3 and writes 4.
        script = f'exec "$@" 3<&{theirs} 4>&{answers}'
        words = [PROGRAM, *_WORDS, f"--user-data-dir={self._home}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *words],
            env={**os.environ, "TMPDIR": self._home},
            pass_fds=(theirs, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(answers)
        self._ids = itertools.count(1)
        self._rest = b""
        self._events: list[dict[str, Any]] = []
        self.console: list[str] = []
        self.requests: list[str] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == number:
                assert "error" not in said, said["error"]
                found: dict[str, Any] = said["result"]
                return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._from, 1 << 20)
            assert piece, "Chromium has ended"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        said: dict[str, Any] = json.loads(line)
        if "method" in said:
            self._heard(said["method"], said["params"])
        return said

    def _heard(self, event: str, said: dict[str, Any]) -> None:
        self._events.append({"event": event, **said})
        if event == "Runtime.exceptionThrown":
            self.console.append(json.dumps(said["exceptionDetails"])[:2000])
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "assert"):
            self.console.append(json.dumps(said["args"])[:2000])
        elif event == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.console.append(said["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def open(self, page: Path) -> None:
        """Open a page; return when it has loaded and its script has run."""
        self.console.clear()
        self.requests.clear()
        self._events.clear()
        self.call("Page.navigate", url=page.as_uri())
        self._loaded()

    def leave(self, expression: str) -> None:
        """Evaluate what leads to another page; return when that has loaded."""
        self._events.clear()
        self.call("Runtime.evaluate", expression=expression)
        self._loaded()

    def _loaded(self) -> None:
        while not any(row["event"] == "Page.loadEventFired" for row in self._events):
            self._next()
        self.painted()

    def js(self, expression: str) -> Any:
        """Return what an expression is; of a promise, what it comes to."""
        said = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def painted(self) -> None:
        """Wait until what was asked of the page has been drawn."""
        frame = "new Promise((done) => requestAnimationFrame(done))"
        self.js(f"{frame}.then(() => {frame}).then(() => true)")

    def mouse(self, kind: str, x: float, y: float, *, held: bool = False, clicks: int = 1) -> None:
        """Move, press or release: `mouseMoved`, `mousePressed`, `mouseReleased`."""
        button = "none" if kind == "mouseMoved" and not held else "left"
        self.call(
            "Input.dispatchMouseEvent",
            type=kind, x=x, y=y, button=button, buttons=int(held), clickCount=clicks,
        )  # fmt: skip

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a mouse does."""
        x, y = self.middle(selector)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, held=True)
        self.mouse("mouseReleased", x, y)
        self.painted()

    def middle(self, selector: str) -> tuple[float, float]:
        """Bring an element into view, and return where its middle is."""
        box = self.box(selector)
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def box(self, selector: str) -> dict[str, float]:
        """Bring an element into view, and return its place in the window."""
        found: dict[str, float] = self.js(
            f"(() => {{ const it = document.querySelector({json.dumps(selector)});"
            " it.scrollIntoView({block: 'center', behavior: 'instant'});"
            " return it.getBoundingClientRect().toJSON(); })()"
        )
        return found

    def drag(self, selector: str, first: float, last: float) -> None:
        """Drag over an element, from one part of its width to another."""
        box = self.box(selector)
        y = box["y"] + box["height"] / 2
        start, end = (box["x"] + box["width"] * part for part in (first, last))
        self.mouse("mouseMoved", start, y)
        self.mouse("mousePressed", start, y, held=True)
        for part in (0.25, 0.5, 0.75, 1):
            self.mouse("mouseMoved", start + (end - start) * part, y, held=True)
        self.mouse("mouseReleased", end, y)
        self.painted()

    def key(self, name: str, text: str = "") -> None:
        """Press and release a key."""
        words: dict[str, Any] = {"key": name, "code": name}
        if text:
            words["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", **words)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)
        self.painted()

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Choose the window's size, and the colours the reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.painted()

    def picture(self) -> bytes:
        """Return the window as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def printed(self) -> bytes:
        """Return the page as PDF."""
        said = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(said["data"])

    def close(self) -> None:
        """End it, with all its processes."""
        os.close(self._to)
        os.close(self._from)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)


def chromium() -> Iterator[Chromium]:
    """Yield a browser, and end it."""
    browser = Chromium()
    try:
        yield browser
    finally:
        browser.close()
