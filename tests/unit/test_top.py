"""`hpckit top` without a screen: lines, texts, what is read and asked; and one frame as text."""

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
from typing import Any

import pytest

from hpckit import files
from hpckit.api import top as api
from hpckit.api.top import LogTail, Watch
from hpckit.live.model import JobNow, Order, View, counts, lines, next_order, toggled
from hpckit.live.texts import about, cells, frame, short_time, sparkline, top_line, widths
from hpckit.run_folders.metrics import Progress
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import GpuInfo, GpuSample, Header, Sample, file_name
from hpckit.stats.samples.tail import KEPT, Busy
from hpckit.text import cut
from tests.conftest import Answer, add_program, needs
from tests.unit.made import make_run
from tests.unit.test_silence import answers, asked, down, squeue_row, up

Cli = Callable[..., Answer]


def job(number: int, **changes: object) -> JobNow:
    values = {
        "key": f"k{number}", "job_id": str(number), "name": f"run{number}",
        "state": JobState.RUNNING, "submitted_at": float(number),
    }  # fmt: skip
    return JobNow(**{**values, **changes})


def tasks(count: int, **changes: object) -> list[JobNow]:
    return [
        job(50, key=f"t{n}", job_id=f"50_{n}", array="a/50", whole="50", task=n, **changes)
        for n in reversed(range(count))
    ]


def ids(found: list) -> list[str]:
    return [line.first.job_id for line in found]


def test_arrays_fold_and_open_one_by_one() -> None:
    jobs = [job(1), *tasks(3), job(99)]
    folded = lines(jobs, View())
    assert [(line.first.job_id, len(line.jobs)) for line in folded] == [
        ("99", 1), ("50_0", 3), ("1", 1),
    ]  # fmt: skip
    opened = View(opened=toggled(View(), folded[1]))
    assert ids(lines(jobs, opened)) == ["99", "50_0", "50_1", "50_2", "1"]
    assert toggled(opened, lines(jobs, opened)[2]) == frozenset()
    assert ids(lines(jobs, View(folded=False))) == ids(lines(jobs, opened))


def test_filters_and_orders() -> None:
    jobs = [
        job(1, state=JobState.COMPLETED, elapsed_s=9.0),
        job(2, state=JobState.PENDING, reason="Priority"),
        job(3, name="Alpha", elapsed_s=5.0),
        job(4, state=JobState.FAILED),
    ]
    assert ids(lines(jobs, View(text="alph"))) == ["3"]
    assert ids(lines(jobs, View(text="PRIOR"))) == ["2"]
    assert ids(lines(jobs, View(text="run"))) == ["4", "3", "2", "1"]  # 3 is RUNNING
    assert ids(lines(jobs, View(order=Order.STATE))) == ["3", "2", "4", "1"]
    assert ids(lines(jobs, View(order=Order.NAME))) == ["3", "1", "2", "4"]
    assert ids(lines(jobs, View(order=Order.TIME)))[:2] == ["1", "3"]
    order, seen = Order.NEWEST, []
    for _ in Order:
        order = next_order(order)
        seen.append(order)
    assert {*seen} == {*Order}
    assert counts(jobs)[0] == (JobState.RUNNING, 1)


def texts(*jobs: JobNow, **view: object) -> list[str]:
    (line,) = lines(jobs, View(**view))
    return [cell.text for cell in cells(line)]


def test_cells_say_what_matters_in_each_state() -> None:
    running = job(
        1, elapsed_s=3725.0, restarts=2, busy=(None, 0.0, 50.0, 100.0),
        progress=Progress(step=3, total_steps=9, loss=0.5),
    )  # fmt: skip
    assert texts(running) == [
        "1", "run1", "RUNNING", "1:02:05", "100%  ▁▄█", "restarted 2x, step 3/9 loss 0.5",
    ]  # fmt: skip
    tomorrow = time.time() + 3 * 86400
    waits = job(2, state=JobState.PENDING, reason="Priority", why="...", expected_start=tomorrow)
    day = time.strftime("%m-%d", time.localtime(tomorrow))
    assert texts(waits)[2:] == ["PENDING", f">{day}", "", "Priority"]
    assert texts(job(3, state=JobState.FAILED, exit_code=9))[5] == "exit status 9"
    assert texts(*tasks(3))[0] == "50"
    mixed = [*tasks(2), *tasks(1, state=JobState.FAILED)]
    assert texts(*mixed)[2] == "2 R 1 F"


def test_no_name_gives_orders_and_no_line_is_too_long() -> None:
    bad = job(1, name="x\x1b[2J\ny\u202e" * 9, why="a\x07b", folder="/f\x1b")
    (line,) = lines([bad], View())
    said = [*(cell.text for cell in cells(line)), *about(line), top_line([bad], "\x1b[31m")]
    assert all(text.isprintable() for text in said)
    for columns in (20, 80, 200):
        shown = frame([line], [bad], "14:00", ["gpu 4/8"], columns).splitlines()
        assert max(map(len, shown)) <= max(columns, 72)
        assert all(text.isprintable() for text in shown)
    plain = frame([line], [bad], "14:00", [], 80, unicode=False)
    assert plain.isascii() or "…" not in plain
    for columns in (60, 66, 71, 80, 100, 160):  # progress has room, and no column is outside
        assert sum(widths(columns)) + 5 == columns
        assert widths(columns)[-1] >= 15
    assert cut("abcdef", 3) == "ab…"
    assert short_time(187265) == "2-04:01"
    assert sparkline([0, 100, None], unicode=False) == ".# "


GPUS = tuple(GpuInfo(index=n, uuid=f"GPU-{n}") for n in range(2))


def header(**changes: object) -> Header:
    values = {
        "host": "n1", "boot_id": "b", "pid": 1, "epoch_us": 10**15, "mono_us": 0,
        "interval_us": 10**6, "gpus": GPUS,
    }  # fmt: skip
    return Header(**{**values, **changes})


def sample(at: int, *permilles: int | None) -> Sample:
    gpus = tuple(GpuSample(utilization_permille=value) for value in permilles)
    return Sample(mono_us=at * 10**6, gpus=gpus)


def test_samples_are_read_from_where_the_last_look_ended(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    busy, encode = Busy(tmp_path), encoder(2)
    assert busy.look() == ()
    path = folder / file_name("n1", 0, 1)
    torn = encode(sample(2, 100, 300))
    path.write_bytes(encode(header()) + encode(sample(1, 0, 1000)) + torn[:20])
    assert busy.look() == (50.0,)
    with path.open("ab") as stream:
        stream.write(torn[20:] + b"damaged line\n\0\0\0" + encode(sample(3, None, 800)))
    assert busy.look() == (50.0, 20.0, 80.0)
    with path.open("ab") as stream:
        stream.write(encode(sample(4, None, None)))
    assert busy.look()[-1] is None
    # A second node weighs as many GPUs as it has; a newer attempt takes their place.
    other = folder / file_name("n2", 0, 1)
    other.write_bytes(encode(header(host="n2")) + encode(sample(1, 600, 600)))
    assert busy.look()[-1] == 60.0
    (folder / file_name("n1", 1, 9)).write_bytes(encode(header()) + encode(sample(9, 10, 10)))
    assert busy.look() == (1.0,)


def test_of_a_long_file_only_the_end_is_read_and_little_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    encode = encoder(2)
    rows = b"".join(encode(sample(n, n % 1000, n % 1000)) for n in range(3000))
    (folder / file_name("n1", 0, 1)).write_bytes(encode(header()) + rows)
    seen = []
    module = sys.modules["hpckit.stats.samples.tail"]
    real = module.unseal
    monkeypatch.setattr(module, "unseal", lambda line: seen.append(1) or real(line))
    busy = Busy(tmp_path)
    assert busy.look()[-1] == 99.9
    assert len(busy.look()) == KEPT
    assert len(seen) < 1500


def test_a_round_is_one_question_and_jobs_that_are_over_are_asked_no_more(
    fake_slurm: Path, here: Path
) -> None:
    runs = [make_run(here / "runs", f"ddp-{n}", job_id=str(100 + n)) for n in range(5)]
    said = "".join(squeue_row(run.job_id, "RUNNING") for run in runs[1:])
    up(fake_slurm, said + squeue_row("100", "CANCELLED"))
    answers(fake_slurm, sacct_out="")
    watch = Watch(here / "runs")
    watch.refresh()
    assert asked(fake_slurm) == {"squeue": 1}
    up(fake_slurm, said)
    for _ in range(3):
        watch.refresh()
        assert asked(fake_slurm) == {"squeue": 1}
    assert sorted(row.state for row in watch.jobs) == ["CANCELLED", *["RUNNING"] * 4]
    # A new run is found; one whose folder is gone is left out.
    make_run(here / "runs", "new", job_id="200", submitted_at=300.0)
    up(fake_slurm, said + squeue_row("200", "PENDING"))
    watch.refresh()
    assert "200" in {row.job_id for row in watch.jobs}


def test_old_jobs_that_are_not_over_are_found_second(
    fake_slurm: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "NEWEST", 3)
    runs = [make_run(here / "runs", f"ddp-{n}", job_id=str(100 + n)) for n in range(9)]
    states = {run.job_id: "CANCELLED" for run in runs}
    up(fake_slurm, "".join(squeue_row(*row) for row in states.items()))
    answers(fake_slurm, sacct_out="")
    watch = Watch(here / "runs")
    watch.refresh()
    first = {row.job_id for row in watch.jobs}
    assert len(first) == 3
    (old, *_) = set(states) - first
    states[old] = "RUNNING"
    up(fake_slurm, "".join(squeue_row(*row) for row in states.items()))
    watch.refresh()
    assert {row.job_id for row in watch.jobs if row.state == "RUNNING"} == {old}
    assert len(watch.jobs) == 4
    asked(fake_slurm)
    single = Watch(here / "runs", in_one=True)  # as --once does
    single.refresh()
    assert {row.job_id for row in single.jobs} == {row.job_id for row in watch.jobs}
    assert asked(fake_slurm) == {"squeue": 1}


def test_what_nobody_knows_is_asked_of_accounting_seldom(fake_slurm: Path, here: Path) -> None:
    make_run(here / "runs", "lost", job_id="100")
    up(fake_slurm, "")
    answers(fake_slurm, sacct_out="")
    watch = Watch(here / "runs")
    counts = []
    for _ in range(12):
        watch.refresh()
        counts.append(sum(asked(fake_slurm).values()))
    assert [row.state for row in watch.jobs] == ["UNKNOWN"]
    assert counts[1:11] == [0] * 10


def test_a_silent_slurm_leaves_what_was_known_and_says_since_when(
    fake_slurm: Path, here: Path
) -> None:
    make_run(here / "runs", "ddp-1", job_id="100")
    up(fake_slurm, squeue_row("100", "RUNNING"))
    watch = Watch(here / "runs")
    assert watch.said() == "asking Slurm"
    watch.refresh()
    down(fake_slurm)
    watch.refresh()
    since = watch.silent_since
    assert since is not None
    assert "Slurm does not answer since" in watch.said()
    watch.refresh()
    assert watch.silent_since == since
    assert len(watch.jobs) == 1
    up(fake_slurm, squeue_row("100", "RUNNING"))
    watch.refresh()
    assert watch.silent_since is None
    assert [row.state for row in watch.jobs] == ["RUNNING"]


def test_files_are_read_of_what_is_in_sight_and_only_when_they_changed(
    fake_slurm: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(here / "runs", f"ddp-{n}", job_id=str(100 + n)) for n in range(2)]
    for run in runs:
        (run.dir / "metrics.jsonl").write_text('{"step": 1}\n')
    up(fake_slurm, "".join(squeue_row(run.job_id, "RUNNING") for run in runs))
    read = []
    module = sys.modules["hpckit.run_folders.metrics"]
    real = module.read_progress
    monkeypatch.setattr(
        module, "read_progress", lambda path, life: read.append(path.name) or real(path, life)
    )
    watch = Watch(here / "runs")
    for _ in range(3):
        watch.refresh({str(runs[1].dir)})
    assert read == ["ddp-1"]
    (runs[1].dir / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    watch.look({str(runs[1].dir)})
    (seen,) = [row for row in watch.jobs if row.progress]
    assert (seen.job_id, seen.progress.step) == ("101", 2)


def test_a_log_is_followed_from_its_last_mb(tmp_path: Path) -> None:
    run: Run = make_run(tmp_path)
    log = run.dir / "logs" / "0.out"
    log.write_text("first\n" + "x" * 1023 + "\n" * 1 + ("y" * 1023 + "\n") * 2000)
    from hpckit.api.run import handle

    tail = LogTail(job(1, handle=handle(run)))
    text = "".join(tail.new())
    assert "first" not in text
    assert 1_000_000 < len(text) <= 1 << 20
    assert text.startswith("y" * 1023 + "\n")
    assert list(tail.new()) == []
    with log.open("a") as stream:
        stream.write("new\n")
    assert list(tail.new()) == ["new\n"]
    log.write_text("anew\n")
    assert list(tail.new()) == ["anew\n"]


def test_a_progress_bar_of_more_than_a_mb_is_shown_from_one_of_its_updates_on(
    tmp_path: Path,
) -> None:
    run: Run = make_run(tmp_path)
    (run.dir / "logs" / "0.err").write_text("epoch\r" * 200_000)
    from hpckit.api.run import handle

    text = "".join(LogTail(job(1, handle=handle(run))).new())
    assert 1_000_000 < len(text) <= 1 << 20
    assert text.startswith("epoch\r")


def test_a_log_that_grows_while_it_is_read_is_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Run = make_run(tmp_path)
    log = run.dir / "logs" / "0.out"
    parts = [b"one\n", b"two \xe2\x96", b"\x88\n", b""]  # the second ends within a character
    log.write_bytes(parts.pop(0))
    opened = files.open_regular

    def growing(*words: Any) -> Any:
        with log.open("ab") as stream:
            stream.write(parts.pop(0))
        return opened(*words)

    monkeypatch.setattr(files, "open_regular", growing)
    from hpckit.api.run import handle

    tail = LogTail(job(1, handle=handle(run)))
    assert [*tail.new(), *tail.new(), *tail.new(), *tail.new()] == ["one\n", "two ", "\u2588\n"]


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
    with pytest.raises(OutsideError, match=r"pip install 'hpckit.*\[top\]'"):
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


def test_wide_letters_take_two_columns_and_a_long_name_leaves_room() -> None:
    named = job(1, name="模型训练-超长的名字", state=JobState.FAILED)
    plain = job(2, name="x" * 150, state=JobState.FAILED)
    assert cut(named.name, 12) == "模型训练-超…"
    shown = frame(lines([named, plain], View()), [named], "", [], 80).splitlines()
    places = {row[0]: row.index("FAILED") for row in shown[-2:]}
    assert places["1"] + 5 == places["2"]  # five letters of the first name take two columns
    (line,) = lines([plain], View())
    assert "FAILED" in about(line)[0][:40]


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
