"""The screen of `hpckit top`: its frames, keys, mouse and end."""

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.api import top as api
from hpckit.api.top import Watch
from hpckit.live.model import JobNow, Order, View
from hpckit.live.texts import widths
from tests.conftest import Answer, add_program, needs
from tests.patience import LONG_S
from tests.unit.made import make_run
from tests.unit.test_silence import squeue_row, up

Cli = Callable[..., Answer]


def test_once_prints_a_frame_and_needs_no_textual(
    fake_slurm: Path, here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setenv("COLUMNS", "80")
    make_run(here / "runs", "ddp-1", job_id="100", name="x\x1b[2Jy")
    up(fake_slurm, squeue_row("100", "RUNNING"))
    said = cli("top", "--once")
    assert said.status == 0
    assert said.out.startswith("1 RUNNING | ")
    assert "x\\x1b[2Jy" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert cli("top", "--once", "--filter", "nothing").out.count("\n") == 3
    for columns in (60, 40):  # what has no room stands below
        monkeypatch.setenv("COLUMNS", str(columns))
        narrow = cli("top", "--once").out
        assert max(map(len, narrow.splitlines())) <= columns
        assert " GPU    PROGRESS" in narrow if columns == 60 else "\n  GPU " in narrow
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    refused = cli("top")
    assert refused.status == 2
    assert "hpckit top --once" in refused.err


def test_a_terminal_that_cannot_draw_gets_one_frame(
    fake_slurm: Path,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hpckit.cli import top as command

    monkeypatch.setenv("TERM", "dumb")
    make_run(here / "runs", "ddp-1", job_id="100")
    up(fake_slurm, squeue_row("100", "RUNNING"))
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True, raising=False)
    command.top()
    said = capsys.readouterr()
    assert said.out.startswith("1 RUNNING | ")
    assert "\x1b" not in said.out + said.err
    assert "TERM=dumb" in said.err


def test_without_textual_it_says_what_to_do(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpckit.cli import top as command
    from hpckit.errors import OutsideError

    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "hpckit.cli.top_screen", raising=False)
    monkeypatch.delitem(sys.modules, "hpckit.cli.top_pages", raising=False)
    monkeypatch.delitem(sys.modules, "hpckit.cli.top_list", raising=False)
    for name in [name for name in sys.modules if name.startswith("textual.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("TERM", "xterm")
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True, raising=False)
    with pytest.raises(OutsideError, match=r" -m pip install 'textual>=8'"):
        command.top()


def in_group(group: str) -> list[str]:
    """Return the processes of a group that live: proc(5); a dead one may wait for its parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, owner, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended since
            continue
        if owner == group and state != "Z":
            found.append(path.parent.name)
    return found


@pytest.mark.long
def test_it_leaves_at_once_while_slurm_hangs_and_leaves_nothing_behind(
    fake_slurm: Path, here: Path
) -> None:
    needs("textual")
    make_run(here / "runs", "ddp-1", job_id="100")
    pid = here / "pid"
    add_program(here.parent / "bin" / "squeue", f"#!/bin/sh\necho $$ >{pid}\nsleep 300 & wait\n")
    for leave in (b"q", b"\x03", signal.SIGTERM, signal.SIGHUP):
        pid.unlink(missing_ok=True)
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", "hpckit", "top"],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "HPCKIT_PATIENCE": "300"},
        )  # fmt: skip
        said = b""
        while not (b"asking Slurm" in said and pid.exists() and pid.read_text()):
            said += os.read(ours, 65536) if select.select([ours], [], [], 0.1)[0] else b""
        if isinstance(leave, bytes):
            os.write(ours, leave)
        else:
            process.send_signal(leave)
        while process.poll() is None:
            said += os.read(ours, 65536) if select.select([ours], [], [], 0.1)[0] else b""
        said += os.read(ours, 65536) if select.select([ours], [], [], 0)[0] else b""
        os.close(ours)
        os.close(theirs)
        assert process.returncode == 0
        assert b"\x1b[?1049l" in said  # the terminal is as it was
        end = time.monotonic() + 60
        while living := in_group(pid.read_text().strip()):
            assert time.monotonic() < end, living
            time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("controls", [True, False])
def test_it_ends_when_its_terminal_is_closed(
    fake_slurm: Path, here: Path, *, controls: bool
) -> None:
    """Also where the terminal does not control its session, which then gets no SIGHUP."""
    needs("textual")
    argv = [sys.executable, "-m", "hpckit", "top"]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [*(("setsid", "--ctty") if controls else ()), *argv],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=not controls,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    try:
        os.close(theirs)
        said = b""
        while b"no jobs" not in said:
            said += os.read(ours, 65536) if select.select([ours], [], [], 0.1)[0] else b""
        os.close(ours)
        process.wait(LONG_S)
    finally:
        process.kill()


@pytest.mark.long
def test_a_mouse_chooses_and_opens_and_colours_are_not_needed(
    fake_slurm: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("textual")
    monkeypatch.setenv("NO_COLOR", "1")
    from hpckit.cli.top_list import JobList
    from hpckit.cli.top_screen import Top

    runs = [
        make_run(here / "runs", f"ddp-{n}", job_id=str(100 + n), submitted_at=float(n))
        for n in range(3)
    ]
    (runs[0].dir / "logs" / "0.out").write_text("50%\r100%\r\nhalf")
    up(fake_slurm, "".join(squeue_row(run.job_id, "RUNNING") for run in runs))

    async def use() -> None:
        app = Top(Watch(here / "runs"), View(), interval=3600)
        async with app.run_test(size=(80, 24)) as pilot:
            while len(app.table.keys) < 3:
                await pilot.pause(0.05)
            await pilot.click(JobList, offset=(3, 2))
            chosen = app.chosen()
            assert chosen is not None
            assert chosen.first.job_id == "100"
            await pilot.click(JobList, offset=(3, 9))  # below the last row
            assert app.table.cursor == 2
            strip = app.table.render_line(2)
            assert all(part.style is not None and part.style.reverse for part in strip)
            await pilot.click(JobList, offset=(3, 2), times=2)
            page = app.screen
            while not getattr(page, "content", app.table).__dict__.get("texts"):
                await pilot.pause(0.05)
            assert page.content.texts == ["50%", "100%", "half"]  # type: ignore[attr-defined]
            assert str(page.bar.content) == "log of 100 ddp  following"  # type: ignore[attr-defined]
            page.content.add(" done\n\x1b[2Jnext")  # type: ignore[attr-defined]
            assert page.content.texts[2:] == ["half done", "\\x1b[2Jnext"]  # type: ignore[attr-defined]

    asyncio.run(use())


@pytest.mark.long
def test_a_window_of_another_size_is_used_at_once_and_wide_letters_are_scrolled_to(
    fake_slurm: Path, here: Path
) -> None:
    needs("textual")
    from hpckit.cli.top_pages import TextPage
    from hpckit.cli.top_screen import Top

    run = make_run(here / "runs", "ddp-1", job_id="100", name="x" * 150)
    up(fake_slurm, squeue_row(run.job_id, "RUNNING"))

    async def use() -> None:
        app = Top(Watch(here / "runs"), View(), interval=3600)
        async with app.run_test(size=(40, 10)) as pilot:
            for width, beside in ((180, True), (60, False), (140, True)):
                await pilot.resize_terminal(width, 24)
                for _ in range(500):
                    if app._widths == widths(width - 2 - 34 * beside):
                        break
                    await pilot.pause(0.02)
                assert app._widths == widths(width - 2 - 34 * beside)
                assert app.side.display == beside
            page = TextPage("text", lambda: "模型" * 100)
            app.push_screen(page)
            while not page.content.virtual_size.width:
                await pilot.pause(0.02)
            assert page.content.virtual_size.width >= 400

    asyncio.run(use())


@pytest.mark.long
def test_on_a_small_screen_a_question_is_whole_and_no_key_acts_unseen(
    fake_slurm: Path, here: Path
) -> None:
    needs("textual")
    from hpckit.cli.top_screen import Top

    run = make_run(here / "runs", "ddp-1", job_id="100", name="x" * 150)
    up(fake_slurm, squeue_row(run.job_id, "RUNNING"))

    async def use() -> None:
        app = Top(Watch(here / "runs"), View(), interval=3600)
        async with app.run_test(size=(40, 10)) as pilot:
            while not app.table.keys:
                await pilot.pause(0.05)
            await pilot.press("c")
            await pilot.pause()
            box = app.screen.box  # type: ignore[attr-defined]
            assert box.region.right <= 40
            assert box.region.height <= 10
            said = " ".join(
                "".join(part.text for part in box.render_line(row)).strip("│ ")
                for row in range(box.size.height + 2)
            )
            assert "y = yes, any other key = no" in " ".join(said.split())
            await pilot.press("n", "l")
            await pilot.pause()
            pages, view, side = len(app.screen_stack), app.view, app.side.display
            await pilot.press("space", "a", "o", "g")
            await pilot.pause()
            assert (len(app.screen_stack), app.view, app.side.display) == (pages, view, side)

    asyncio.run(use())


@pytest.mark.long
def test_keys_that_arrive_together_do_what_they_do_one_by_one(
    fake_slurm: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal may hand over many keys at once: a slow line does, and so does a script."""
    needs("textual")
    from textual import events

    from hpckit.cli.top_pages import LogPage, Question
    from hpckit.cli.top_screen import Top

    ended: list[str] = []

    def end(jobs: list[JobNow]) -> str:
        ended.extend(job.job_id for job in jobs)
        return "ended"

    monkeypatch.setattr(api, "end", end)
    run = make_run(here / "runs", "ddp-1", job_id="100")
    (run.dir / "logs" / "0.out").write_text("a cyq b\n")
    up(fake_slurm, squeue_row(run.job_id, "RUNNING"))

    async def use() -> None:
        app = Top(Watch(here / "runs"), View(), interval=3600)
        async with app.run_test(size=(80, 24)) as pilot:

            async def until(check: Callable[[], object]) -> None:
                while not check():
                    await pilot.pause(0.01)

            async def type_at_once(*keys: str) -> None:
                for key in keys:
                    letter = {"slash": "/"}.get(key, key)
                    app.post_message(events.Key(key, letter if len(letter) == 1 else None))
                taken: list[bool] = []
                app.call_later(taken.append, True)  # behind them
                await until(lambda: taken and not app._taking)

            await until(lambda: app.table.keys)
            # A field for text takes what follows, until Enter.
            await type_at_once("slash", *"cy")
            assert (app.entry.value, len(app.screen_stack)) == ("cy", 1)
            await type_at_once("escape", "slash", *"100", "enter", "o")
            assert (app.view.text, app.entry.display) == ("100", False)
            assert app.view.order is Order.STATE
            # So does that of a page, which is only being made.
            await type_at_once("l", "slash", *"cyq", "enter", "f")
            page = app.screen
            assert isinstance(page, LogPage)
            assert (page.content.needle, page.entry.display, page.following) == ("cyq", False, True)
            await type_at_once("escape")
            # A question takes what is typed when it is on the screen, and so does the second one.
            await type_at_once(*"cyy")
            question = app.screen
            assert isinstance(question, Question)
            await until(lambda: question.shown_at)
            assert len(question._texts) == 2
            await type_at_once(*"yy")
            await until(lambda: question.shown_at)
            assert (app.screen, len(question._texts)) == (question, 1)
            assert ended == []
            await type_at_once("y")
            await until(lambda: ended and not app.acting)
            assert ended == ["100"]
            # Text that is pasted is not a command.
            await type_at_once("escape", "slash")
            app.post_message(events.Paste("cy"))
            await until(lambda: app.entry.value == "cy")
            assert len(app.screen_stack) == 1

    asyncio.run(use())
