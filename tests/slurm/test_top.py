"""`hpckit top` on a real Slurm with 300 jobs: every key, and how often Slurm is asked."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import add_program, needs
from tests.patience import LONG_S
from tests.slurm.conftest import Desk, eventually

needs("textual")
pytestmark = pytest.mark.slurm
MANY = 300
TALKS = """\
import json, os, time
print("alpha\\x1b[2J beta [red]gamma[/red]", flush=True)
with open(os.path.join(os.environ["HPCKIT_RUN_DIR"], "metrics.jsonl"), "a") as log:
    print(json.dumps({"step": 7, "total_steps": 9, "loss": 0.25}), file=log)
for step in range(40):
    print("line", step, flush=True)
while not os.path.exists("enough"):
    time.sleep(0.1)
"""


def counting(desk: Desk, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Become the desk's user, with an squeue that counts its calls; return what gives the count."""
    real = desk.slurm.run("sh", "-c", "command -v squeue").stdout.strip()
    calls, programs = folder / "calls", folder / "bin"
    programs.mkdir()
    calls.touch()
    add_program(programs / "squeue", f'#!/bin/sh\necho x >>{calls}\nexec {real} "$@"\n')
    for name, value in desk.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{programs}:{desk.env['PATH']}")
    monkeypatch.chdir(desk.work)
    return lambda: len(calls.read_text().splitlines())


class Driver:
    """Presses keys on a screen, and waits for what they are to do."""

    def __init__(self, app: Any, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await self.until(self.ready)
        await self.pilot.pause()

    def ready(self) -> bool:
        """Say whether all keys are taken, and a question, if there is one, is on the screen."""
        app = self.app
        unseen = getattr(app.screen, "shown_at", 0) is None
        return bool(app._exit or not (app._taking or unseen))

    async def until(self, check: Callable[[], object]) -> None:
        end = time.monotonic() + LONG_S
        while not check():
            assert time.monotonic() < end, self.words()
            await self.pilot.pause(0.05)

    def words(self) -> str:
        """Give the letters on the screen."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(part.text for part in strip) for strip in lines)


def drive(root: Path, size: tuple[int, int], steps: Callable[[Driver], Awaitable[None]]) -> None:
    """Show the screen without a terminal, as large as `size`, and do the steps on it."""
    from hpckit.api.top import View, Watch
    from hpckit.cli.top_screen import Top

    async def run() -> None:
        app = Top(Watch(root), View(), interval=3600)
        async with app.run_test(size=size, notifications=True) as pilot:
            driver = Driver(app, pilot)
            await driver.until(lambda: app.watch_of.asked and not app._asking)
            await steps(driver)

    asyncio.run(run())


def test_every_key_on_300_jobs_and_one_question_per_refresh(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.work / "talks.py").write_text(TALKS)
    (desk.work / "bad.py").write_text("raise ValueError('image 1041')\n")
    (desk.work / "values").write_text("".join(f"{n}\n" for n in range(MANY)))
    alone = ("serial", "bad.py", "--gpus", "0", "--time", "5m", "--name", "bad")
    failed = desk.submit(*alone)["job_id"]
    talks = desk.submit("serial", "talks.py", "--gpus", "0", "--time", "5m", "--name", "talks")
    sweep = ("serial", "bad.py", "--gpus", "0", "--name", "[bold]sweep", "--array", "lr=@values")
    array = desk.submit(*sweep, "--sbatch", "hold")["jobs"][0]["job_id"].partition("_")[0]
    desk.until(failed, "FAILED")
    assert eventually(lambda: (Path(talks["run_dir"]) / "metrics.jsonl").exists())
    calls = counting(desk, tmp_path, monkeypatch)

    async def look(at: Driver) -> None:
        app, table = at.app, at.app.table
        assert calls() == 1  # the first refresh
        await at.press("R")
        await at.until(lambda: not app._asking)
        assert calls() == 2
        assert len(app.watch_of.jobs) == MANY + 2
        shown = at.words()
        assert "300 PD" in shown
        assert "[bold]sweep" in shown
        assert "step 7/9" in shown
        assert [line.key.startswith("array") for line in app.found] == [True, False, False]
        # Arrays, the cursor, order and filter.
        await at.press("home", "space")
        assert len(app.found) == MANY + 2
        await at.press("end", "pageup", "up", "down", "k", "j", "pagedown")
        assert table.cursor == MANY + 1
        await at.press("home", "enter")
        assert len(app.found) == 3
        await at.press("a")
        assert len(app.found) == MANY + 2
        await at.press("a")
        orders = []
        for _ in range(4):
            await at.press("o")
            orders.append([line.first.name for line in app.found])
        assert orders[1] == ["[bold]sweep", "bad", "talks"]  # by name
        assert orders[0][0] == "talks"  # what runs, first
        assert orders[3] == ["[bold]sweep", "talks", "bad"]
        await at.press("slash", *"failed")
        assert [line.first.job_id for line in app.found] == [failed]
        await at.press("enter")
        assert app.focused is table
        await at.press("escape")
        assert len(app.found) == 3
        await at.press("g")
        await at.until(lambda: "h200" in at.words())
        await at.press("g", "question_mark")
        await at.until(lambda: "quit" in at.words())
        # Nobody is asked while a page covers the list, or another window has the focus.
        before = calls()
        for _ in range(3):
            app.tick()
        await at.pilot.pause(0.3)
        assert calls() == before
        await at.press("q")
        await at.until(lambda: not app._asking and len(app.screen_stack) == 1)
        assert calls() == before + 1

    drive(desk.runs, (80, 24), look)

    async def act(at: Driver) -> None:
        from textual.events import AppBlur, AppFocus

        app, table = at.app, at.app.table
        app.post_message(AppBlur())
        await at.until(lambda: "out of focus" in at.words())
        before = calls()
        app.tick()
        await at.pilot.pause(0.3)
        assert calls() == before
        app.post_message(AppFocus())
        await at.until(lambda: not app._asking and calls() == before + 1)
        app.post_message(AppBlur())
        await at.press("p")
        app.tick()
        await at.until(lambda: not app._asking and calls() == before + 2)

        async def choose(name: str) -> None:
            keys = [line.key for line in app.found if line.first.name == name]
            table.move_to(table.keys.index(keys[0]))
            await at.pilot.pause()

        # Logs: the terminal's orders in them are spelt out, markup is text.
        await choose("talks")
        await at.press("l")
        await at.until(lambda: "line 39" in at.words())
        page = app.screen
        await at.press("slash", *"gamma", "enter")
        assert "1 of 1" in at.words()
        assert r"alpha\x1b[2J beta [red]gamma[/red]" in at.words()
        await at.press("slash", *"line 3", "enter", "n", "n", "N")
        assert "2 of 11" in at.words()
        assert not page.following
        await at.press("f")
        assert page.following
        (desk.work / "enough").touch()
        await at.press("e")
        await at.until(lambda: "no rank has failed" in at.words())
        await at.press("escape", "escape")
        assert len(app.screen_stack) == 1
        await choose("bad")
        await at.press("e")
        await at.until(lambda: "ValueError: image 1041" in at.words())
        await at.press("escape", "s")
        await at.until(lambda: "CPU" in at.words())
        await at.press("escape")
        # Again, after one question; a no is a no.
        await at.press("r", "n")
        await at.press("r")
        assert "again?" in at.words()
        await at.press("y")
        await at.until(lambda: "submitted" in at.words())
        desk.submitted.append(at.words().split("again as ")[1].split()[0])
        # Cancel, after two.
        await choose("[bold]sweep")
        await at.press("c", "y", "x")
        assert len(app.screen_stack) == 1
        await at.press("c")
        assert f"Cancel 300 tasks of {array}?" in at.words()
        await at.press("y")
        assert "Once more" in at.words()
        await at.press("y")
        await at.until(lambda: "asked Slurm to end" in at.words())
        await at.press("R")
        await at.until(
            lambda: (
                not app._asking
                and {job.state for job in app.watch_of.jobs if job.whole == array} == {"CANCELLED"}
            )
        )
        await at.press("q")

    drive(desk.runs, (100, 30), act)
    said = desk.call("top", "--once", env={"COLUMNS": "100"})
    assert "300 CANCELLED" in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    free = desk.call("free", "--json").json["free"]
    assert json.dumps(free)
    assert {row["gpu"] for row in free} == {"h200"}
