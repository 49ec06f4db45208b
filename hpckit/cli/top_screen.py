"""The live screen, drawn by Textual: its keys, and where the texts of `hpckit.api.top` stand.

Only what has changed is written to the terminal.
"""

import signal
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from hpckit.api import top as api
from hpckit.api.top import HEADS, Cell, JobNow, Line, View, Watch
from hpckit.cli.top_list import JobList, head_line
from hpckit.cli.top_pages import LogPage, Question, TextPage, error_page
from hpckit.cli.top_work import WorkingApp, terminal_is_gone

# From so many columns on, what is free stands beside the list.
_WIDE = 110
_SIDE = 34
_OF_THE_LIST = frozenset({"open", "filter", "sort", "fold", "free", "clear"})
_HELP = """\
up, down, j, k   choose a line               / text, Enter   show only jobs with it
Enter, space     open an array, or the log   o               sort: newest, state, name, time
l                log: f follow, / search     a               fold all arrays, or none
e                errors: the first traceback g               free GPUs at the side
s                statistics (hpckit stats)   R               ask Slurm now
c                cancel; asked twice         p               go on while out of focus
r                submit again; asked once    q               quit

Slurm's queue is asked once per interval, whatever the number of jobs, and not at all while another
page covers the list, or while the terminal says that it has lost the focus (p changes that).
"""


class Top(WorkingApp):
    """The list of jobs."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    .bar { height: 1; text-style: bold; }
    #about { height: auto; min-height: 3; }
    JobList { overflow-x: hidden; }
    #side { width: 34; padding-left: 1; display: none; }
    #heads { height: 1; }
    JobList, Lines { height: 1fr; background: ansi_default; }
    Input { height: 1; }
    Question { align: center middle; }
    .question { width: 60; max-width: 100%; height: auto; border: round ansi_yellow; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "log", "Log"),
        Binding("e", "errors", "Errors"),
        Binding("s", "stats", "Stats"),
        Binding("c", "cancel", "Cancel"),
        Binding("r", "resubmit", "Rerun"),
        Binding("slash", "filter", "Filter"),
        Binding("o", "sort", "Sort"),
        Binding("a", "fold", "Fold"),
        Binding("g", "free", "Free", show=False),
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),
        Binding("space", "open", "Open", show=False),
        Binding("R", "now", show=False),
        Binding("p", "stay", show=False),
        Binding("escape", "clear", show=False),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False),
    ]

    def __init__(self, watch: Watch, view: View, interval: float) -> None:
        super().__init__()
        self.watch_of = watch
        self.view = view
        self.interval = interval
        self.found: list[Line] = []
        self._widths: tuple[int, ...] = ()
        self._asking = False
        self._in_focus = True
        self._stays = False
        self._side_wanted: bool | None = None
        self.bar = Static(id="bar", classes="bar", markup=False)
        self.heads = Static(id="heads", markup=False)
        self.table = JobList()
        self.side = Static(id="side", markup=False)
        self.about = Static(id="about", markup=False)
        self.entry = Input(placeholder="show only jobs with...", compact=True)

    def watch_jobs(self) -> None:
        """Show the screen until the user leaves it, then end the questions that are still open."""
        try:
            self.run()
        finally:
            # Work on jobs goes on; hpckit finds a submission that was cut short.
            if not self.acting:
                api.stop_asking()
            if terminal_is_gone():
                self.end_without_terminal()

    def compose(self) -> ComposeResult:
        """Return the parts of the screen, as Textual asks for them."""
        yield self.bar
        with Horizontal():
            with Vertical():
                yield self.heads
                yield self.table
            yield self.side
        yield self.about
        yield self.entry
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Ask for the first time, and then again and again."""
        self.entry.display = False
        self.entry.cursor_blink = False
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop_signal(number)
        self.leave_with_terminal()
        self._lay_out()
        self.table.focus()
        self.show()
        self.ask()
        self.set_interval(self.interval, self.tick)

    def _loop_signal(self, number: int) -> None:
        """Let a signal end the app."""
        import asyncio  # noqa: PLC0415  # Textual has it anyway

        asyncio.get_running_loop().add_signal_handler(number, self.leave)

    # --- asking Slurm ---

    @property
    def hidden(self) -> bool:
        """Whether nobody sees the list, as far as that can be known."""
        covered = any(not isinstance(row, ModalScreen) for row in self.screen_stack[1:])
        return covered or not (self._in_focus or self._stays)

    def tick(self) -> None:
        """Ask again, if the list is seen and the last answer has come."""
        if not self.hidden and not self._asking:
            self.ask()

    def ask(self) -> None:
        """Ask Slurm, in a thread."""
        self._asking = True
        keys = self._in_sight()

        def work() -> None:
            self.watch_of.refresh(keys or None)

        self.behind(work, lambda _: self._answered())

    def _answered(self) -> None:
        self._asking = False
        self.show()
        if self.side.display:
            self.behind(self.watch_of.refresh_free, lambda _: self._show_side())

    def unanswered(self, why: str) -> None:
        """Show why Slurm did not answer; it may be asked again."""
        self._asking = False
        super().unanswered(why)

    def on_app_blur(self, _event: events.AppBlur) -> None:
        """Pause: the terminal says that another window has the focus."""
        self._in_focus = False
        self._show_bar()

    def on_app_focus(self, _event: events.AppFocus) -> None:
        """Ask again, at once."""
        self._in_focus = True
        self.tick()
        self._show_bar()

    # --- showing ---

    def show(self) -> None:
        """Show what is known; only cells that have changed are drawn."""
        self.found = api.lines(self.watch_of.jobs, self.view)
        self._show_bar()
        self._show_table()
        self._show_about()
        self._show_side()

    def _show_bar(self) -> None:
        said = self.watch_of.said()
        if not (self._in_focus or self._stays):
            said = f"paused, out of focus (p goes on) | {said}"
        if self.view.text:
            said = f"only {self.view.text!r} | {said}"
        if self.view.order is not api.Order.NEWEST:
            said = f"by {self.view.order} | {said}"
        self.bar.update(Text(api.top_line(self.watch_of.jobs, said), no_wrap=True))

    def _show_table(self) -> None:
        rows = [self._fitted(line) for line in self.found]
        self.table.show_rows([line.key for line in self.found], rows, self._widths)

    def _fitted(self, line: Line) -> tuple[Cell, ...]:
        return tuple(
            replace(cell, text=api.cut(cell.text, width))
            for cell, width in zip(api.cells(line, self._widths), self._widths, strict=True)
        )

    def _show_about(self) -> None:
        line = self.chosen()
        rows = api.about(line) if line else ["No job is shown. Submit one: hpckit submit ddp"]
        if line is None and self.watch_of.asked is None:
            rows = []
        fitted = [api.cut(row, self.size.width) for row in rows]
        self.about.update(Text("\n".join(fitted), no_wrap=True))

    def _show_side(self) -> None:
        if self.side.display:
            rows = ["FREE NOW", *self.watch_of.side()]
            self.side.update(Text("\n".join(api.cut(row, _SIDE - 2) for row in rows)))

    def _lay_out(self) -> None:
        """Set the widths of the columns, and whether free GPUs stand beside the list."""
        wide = self.size.width >= _WIDE
        self.side.display = wide if self._side_wanted is None else self._side_wanted
        columns = self.size.width - (_SIDE if self.side.display else 0)
        # Two columns of the list are its scroll bar.
        self._widths = api.widths(columns - 2)
        self.heads.update(head_line([*map(api.cut, HEADS, self._widths)], self._widths))

    def on_resize(self) -> None:
        """Lay out anew, once Textual has set `size`: it does so after this."""
        self.call_later(self._lay_out_anew)

    def _lay_out_anew(self) -> None:
        if self._widths:  # it was laid out before
            self._lay_out()
            self.show()

    def on_job_list_chosen(self) -> None:
        """Show more about the line that was chosen."""
        self._show_about()

    def on_job_list_opened(self) -> None:
        """Open it."""
        self.action_open()

    # --- which line ---

    def chosen(self) -> Line | None:
        """Return the chosen line; None: the list is empty."""
        return next((line for line in self.found if line.key == self.table.key), None)

    def _in_sight(self) -> set[str]:
        """Return the keys of the jobs on the screen, and of some around it."""
        first = max(int(self.table.scroll_offset.y) - 10, 0)
        rows = self.found[first : first + self.size.height + 20]
        return {job.key for line in rows for job in line.jobs}

    def _one_job(self) -> JobNow | None:
        line = self.chosen()
        if line is None:
            return None
        if line.is_array:
            self.tell("This is an array: press Enter, then choose one of its tasks.", "warning")
            return None
        return line.first

    # --- keys ---

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keep keys that change the list from doing so unseen, under a page (Textual's word)."""
        if action in _OF_THE_LIST and len(self.screen_stack) > 1:
            return False
        return super().check_action(action, parameters)

    def action_open(self) -> None:
        """Open or fold an array; show a job's log."""
        line = self.chosen()
        if line is None:
            return
        if line.first.array and (line.is_array or line.first.array in self.view.opened):
            self.view = replace(self.view, opened=api.toggled(self.view, line))
            self.show()
        else:
            self.action_log()

    def action_log(self) -> None:
        """Show a job's log."""
        if job := self._one_job():
            self._cover(LogPage(job))

    def action_errors(self) -> None:
        """Show why a job failed."""
        if job := self._one_job():
            self._cover(error_page(job))

    def action_stats(self) -> None:
        """Show a job's statistics."""
        if job := self._one_job():
            self._cover(TextPage(f"statistics of {job.job_id}", lambda: api.stats_of(job)))

    def action_help(self) -> None:
        """Show the keys."""
        self._cover(TextPage("hpckit top", lambda: _HELP))

    def _cover(self, page: TextPage) -> None:
        """Show a page over the list, and ask Slurm at once when it is left."""
        self.push_screen(page, lambda _: self.tick())

    def action_cancel(self) -> None:
        """Cancel a job, or all tasks of an array that are not over, after two questions."""
        line = self.chosen()
        jobs = [job for job in line.jobs if not job.over] if line else []
        if line is None or not jobs:
            self.tell("This job is over.", "warning")
            return
        name = line.first.whole if line.is_array else line.first.job_id
        one = f"{name} {api.short_name(line.first)}"
        what = f"{len(jobs)} tasks of {name}" if line.is_array else one
        first, second = f"Cancel {what}?", f"Once more: end {what}, without a way back?"

        def answered(yes: bool | None) -> None:
            if yes:
                self.act(lambda: api.end(jobs), self.tick)

        self.push_screen(Question(first, second), answered)

    def action_resubmit(self) -> None:
        """Submit a job again, after a question."""
        job = self._one_job()
        if job is None:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.act(lambda: api.again(job), self.tick)

        self.push_screen(Question(f"Submit {job.job_id} {api.short_name(job)} again?"), answered)

    def action_filter(self) -> None:
        """Ask for a text that jobs must have to be shown."""
        self.entry.display = True
        self.entry.value = self.view.text
        self.entry.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only jobs that have the text."""
        if event.input is self.entry and self.entry.display:
            self.view = replace(self.view, text=event.value)
            self.show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go back to the list, and keep the filter."""
        if event.input is self.entry:
            self.entry.display = False
            self.table.focus()

    def action_clear(self) -> None:
        """Show all jobs again."""
        self.entry.display = False
        self.table.focus()
        self.view = replace(self.view, text="")
        self.show()

    def action_sort(self) -> None:
        """Sort by the next order."""
        self.view = replace(self.view, order=api.next_order(self.view.order))
        self.show()

    def action_fold(self) -> None:
        """Fold all arrays, or none."""
        self.view = replace(self.view, folded=not self.view.folded, opened=frozenset())
        self.show()

    def action_free(self) -> None:
        """Show or hide free GPUs."""
        self._side_wanted = not self.side.display
        self._lay_out()
        self.show()
        if self.side.display:
            self.behind(self.watch_of.refresh_free, lambda _: self._show_side())

    def action_now(self) -> None:
        """Ask Slurm now."""
        if not self._asking:
            self.ask()

    def action_stay(self) -> None:
        """Switch whether asking goes on while the terminal is out of focus."""
        self._stays = not self._stays
        self.tell("goes on while out of focus" if self._stays else "pauses while out of focus")
        self._show_bar()
