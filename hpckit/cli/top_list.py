"""The list of `hpckit top`: rows of cells and a cursor; only cells that have changed are drawn.

Textual's own table draws all of itself anew when one cell changes, which a slow line feels.
"""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hpckit.api.top import Cell

_COLOURS = {
    "": Style(),
    "red": Style(color="red", bold=True),
    "green": Style(color="green"),
    "yellow": Style(color="yellow"),
    "dim": Style(dim=True),
}
_CHOSEN = Style(reverse=True)


class JobList(ScrollView, can_focus=True):
    """Rows by their keys. The row under the cursor is drawn in reverse, also without colours."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Chosen(Message):
        """Another row is under the cursor."""

    class Opened(Message):
        """The row under the cursor is to be opened."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []
        self.cursor = 0
        self._rows: list[tuple[Cell, ...]] = []
        self._widths: tuple[int, ...] = ()

    @property
    def key(self) -> str | None:
        """The key of the row under the cursor; None: there is no row."""
        return self.keys[self.cursor] if self.cursor < len(self.keys) else None

    def show_rows(
        self, keys: Sequence[str], rows: Sequence[tuple[Cell, ...]], widths: tuple[int, ...]
    ) -> None:
        """Show rows of cells, each as wide as `widths` says; the cursor stays on its row."""
        chosen, before = self.key, self._rows
        same = [*keys] == self.keys and widths == self._widths
        self.keys, self._rows, self._widths = [*keys], [*rows], widths
        if same:
            for at, (old, new) in enumerate(zip(before, rows, strict=True)):
                if old != new:
                    self._draw_changes(at, old, new)
            return
        last = max(len(self.keys) - 1, 0)
        self.cursor = self.keys.index(chosen) if chosen in self.keys else min(self.cursor, last)
        self.virtual_size = Size(sum(widths) + len(widths) - 1, len(self.keys))
        self.refresh()
        self.post_message(self.Chosen())

    def _draw_changes(self, at: int, old: Sequence[Cell], new: Sequence[Cell]) -> None:
        left = 0
        for before, after, width in zip(old, new, self._widths, strict=True):
            if before != after:
                self._draw(Region(left, at, width, 1))
            left += width + 1

    def _draw(self, region: Region) -> None:
        self.refresh(region.translate((-self.scroll_offset.x, -self.scroll_offset.y)))

    def _draw_row(self, at: int) -> None:
        self._draw(Region(0, at, max(self.virtual_size.width, self.size.width), 1))

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen (Textual's own word for it)."""
        at = self.scroll_offset.y + y
        width = self.size.width
        if not at < len(self._rows):
            return Strip.blank(width)
        base = _CHOSEN if at == self.cursor else Style()
        segments = []
        for cell, size in zip(self._rows[at], self._widths, strict=True):
            # In reverse, colours would be blocks of colour.
            style = base if at == self.cursor else _COLOURS.get(cell.colour, base)
            segments.append(Segment(set_cell_size(cell.text, size), style))
            segments.append(Segment(" ", base))
        left = self.scroll_offset.x
        return Strip(segments).crop(left, left + width).adjust_cell_length(width, base)

    def move_to(self, at: int) -> None:
        """Put the cursor on a row, or the nearest that there is."""
        at = min(max(at, 0), max(len(self.keys) - 1, 0))
        if at == self.cursor:
            return
        before, self.cursor = self.cursor, at
        self._draw_row(before)
        self._draw_row(at)
        self.scroll_to_region(Region(0, at, 1, 1), animate=False, x_axis=False)
        self.post_message(self.Chosen())

    def action_move(self, step: int) -> None:
        """Go some rows down, or up."""
        self.move_to(self.cursor + step)

    def action_page(self, step: int) -> None:
        """Go a page down, or up."""
        self.move_to(self.cursor + step * max(self.size.height - 1, 1))

    def action_open(self) -> None:
        """Open the row."""
        if self.key is not None:
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """Choose a row; twice: open it."""
        at = int(self.scroll_offset.y) + event.y
        if not 0 <= at < len(self.keys):
            return
        self.move_to(at)
        if event.chain > 1:
            self.action_open()


def head_line(heads: Sequence[str], widths: Sequence[int]) -> Text:
    """Return the heads of the columns."""
    cells = (set_cell_size(head, width) for head, width in zip(heads, widths, strict=True))
    return Text(" ".join(cells), no_wrap=True, style="underline")
