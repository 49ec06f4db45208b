"""Pages over the list of `hpckit top`: a text that scrolls and can be searched, and questions."""

from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, Static

from hpckit.api.top import JobNow, LogTail, errors_of
from hpckit.errors import HpckitError
from hpckit.text import cells, in_line, spelt

# Lines that are kept; what is before them is in the file.
_MOST_LINES = 20_000
_LOOK_S = 0.5
_FOUND = Style(reverse=True)


class Lines(ScrollView, can_focus=True):
    """Lines of plain text: nothing in them is markup, and control characters are spelt out."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.needle = ""
        self._open = False  # the last line may go on

    def show(self, text: str) -> None:
        """Show a text in place of what is there."""
        self.texts, self._open = [], False
        self.add(text)

    def add(self, text: str) -> None:
        """Add a piece of text, which may begin or end within a line."""
        # A progress bar's carriage returns begin lines here.
        plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
        parts = spelt(plain).split("\n")
        if self._open and self.texts:
            self.texts[-1] += parts.pop(0)
        self._open = bool(parts and parts[-1]) or (self._open and not parts)
        self.texts += parts if self._open or not parts else parts[:-1]
        del self.texts[:-_MOST_LINES]
        width = max(map(cells, self.texts), default=0)
        self.virtual_size = Size(width, len(self.texts))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen (Textual's own word for it)."""
        left, top = self.scroll_offset
        index = top + y
        text = self.texts[index] if index < len(self.texts) else ""
        shown = Text(text, no_wrap=True, end="")
        if self.needle:
            shown.highlight_words([self.needle], _FOUND, case_sensitive=False)
        segments: list[Segment] = list(shown.render(self.app.console))
        width = self.size.width
        return Strip(segments).crop(left, left + width).adjust_cell_length(width)

    def matches(self) -> list[int]:
        """Return the numbers of the lines that have what is looked for."""
        needle = self.needle.casefold()
        return [at for at, text in enumerate(self.texts) if needle and needle in text.casefold()]


class TextPage(Screen[None]):
    """One text that covers the list; `fetch` gets it, in a thread of its own."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Back"),
        Binding("slash", "search", "Search"),
        Binding("n", "next(1)", "Next"),
        Binding("N", "next(-1)", "Before"),
    ]

    def __init__(self, title: str, fetch: Callable[[], str] | None = None) -> None:
        super().__init__()
        self.head = title
        self._fetch = fetch
        self.content = Lines()
        self.bar = Static(markup=False)
        self.entry = Input(placeholder="search", compact=True)

    def compose(self) -> ComposeResult:
        """Return the page's parts (Textual's own word for it)."""
        yield self.bar
        yield self.content
        yield self.entry
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to fetch."""
        self.bar.add_class("bar")
        self.entry.display = False
        self.entry.cursor_blink = False
        self.content.focus()
        if self._fetch is not None:
            self.say("...")
            Thread(target=self._get, args=(self._fetch,), daemon=True).start()

    def _get(self, fetch: Callable[[], str]) -> None:
        try:
            text, words = fetch(), ""
        except HpckitError as error:
            text, words = str(error), "error"
        hand_over(self, partial(self._show, text, words))

    def _show(self, text: str, words: str) -> None:
        self.content.show(text + "\n")
        self.say(words)

    def say(self, words: str = "") -> None:
        """Say something beside the title."""
        self.bar.update(Text(in_line(f"{self.head}  {words}"), no_wrap=True))

    def action_leave(self) -> None:
        """Close the search, or the page."""
        if self.entry.display:
            self.entry.display = False
            self.content.focus()
        else:
            self.dismiss()

    def action_search(self) -> None:
        """Ask what to look for."""
        self.entry.display = True
        self.entry.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the first line that has it."""
        self.entry.display = False
        self.content.focus()
        self.content.needle = event.value
        self.content.refresh()
        self.action_next(1, anew=True)

    def action_next(self, step: int, anew: bool = False) -> None:
        """Go to the next line that has it, or the one before."""
        found = self.content.matches()
        if not found:
            self.say(f"{self.content.needle!r} is not in it" if self.content.needle else "")
            return
        at = int(self.content.scroll_offset.y)
        last = max(len(self.content.texts) - self.content.size.height, 0)
        places = [min(row, last) for row in found]
        if anew:
            position = next((i for i, row in enumerate(found) if row >= at), 0)
        else:
            position = (getattr(self, "_match", 0) + step) % len(found)
        self._match = position
        self.content.scroll_to(y=places[position], animate=False)
        self.say(
            f"{self.content.needle!r}: {position + 1} of {len(found)}, line {found[position] + 1}"
        )


class LogPage(TextPage):
    """What a job wrote, followed as it is written."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow"),
        Binding("e", "errors", "Errors"),
    ]

    def __init__(self, job: JobNow) -> None:
        super().__init__(f"log of {job.job_id} {job.name}")
        self.job = job
        self.following = True
        self._tail = LogTail(job)

    def on_mount(self) -> None:
        """Begin to read; Textual itself calls that of the class above, after this."""
        self.say("following" if not self.job.over else "")
        Thread(target=self._read, daemon=True).start()

    def on_unmount(self) -> None:
        """End to read."""
        self._tail.stopped.set()

    def _read(self) -> None:
        while not self._tail.stopped.is_set():
            try:
                for text in self._tail.new():
                    hand_over(self, partial(self._add, text))
            except HpckitError as error:
                hand_over(self, partial(self.say, str(error)))
                return
            self._tail.stopped.wait(_LOOK_S)

    def _add(self, text: str) -> None:
        self.content.add(text)
        if self.following:
            self.content.scroll_end(animate=False)

    def action_follow(self) -> None:
        """Stay at the end, or where one reads."""
        self.following = not self.following
        self.say("following" if self.following else "stopped here; f follows again")
        if self.following:
            self.content.scroll_end(animate=False)

    def action_errors(self) -> None:
        """Show why it failed."""
        self.app.push_screen(error_page(self.job))

    def action_next(self, step: int, anew: bool = False) -> None:
        """Stay where what was looked for is."""
        self.following = False
        super().action_next(step, anew)


def error_page(job: JobNow) -> TextPage:
    """Return the page of why a job failed."""
    return TextPage(f"errors of {job.job_id} {job.name}", lambda: errors_of(job))


class Question(ModalScreen[bool]):
    """Asks, as often as there are texts; only `y` to each is a yes.

    Keys that were typed before a text was on the screen are no answer to it.

    Attributes:
        shown_at: since when the text is on the screen, by Textual's clock; None: it is not yet.
    """

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self._texts = list(texts)
        self.shown_at: float | None = None
        self.box = Static(markup=False)

    def compose(self) -> ComposeResult:
        """Return the box (Textual's own word for it)."""
        self.box.add_class("question")
        yield self.box

    def on_mount(self) -> None:
        """Ask the first."""
        self._ask()

    def _ask(self) -> None:
        self.shown_at = None
        self.box.update(Text(in_line(f"{self._texts[0]}  y = yes, any other key = no")))
        self.call_after_refresh(self._is_shown)

    def _is_shown(self) -> None:
        self.shown_at = Message().time

    def on_key(self, event: events.Key) -> None:
        """Take the answer."""
        event.stop()
        if self.shown_at is None or event.time < self.shown_at:
            return
        if event.key != "y":
            self.dismiss(False)
            return
        self._texts.pop(0)
        if self._texts:
            self._ask()
        else:
            self.dismiss(True)

    def on_click(self) -> None:
        """Take a click for a no."""
        self.dismiss(False)


def hand_over(screen: Screen[object] | Screen[None], work: Callable[[], None]) -> None:
    """Let the screen's own thread do something, if the screen is still there."""
    app = screen.app
    if app.is_running and screen.is_attached:
        app.call_from_thread(lambda: work() if screen.is_attached else None)
