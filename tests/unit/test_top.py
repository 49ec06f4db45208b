"""`hpckit top` without a screen: lines, texts, what is read and asked; and one frame as text."""

import sys
import time
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
from tests.unit.made import make_run
from tests.unit.test_silence import answers, asked, down, squeue_row, up


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


def test_wide_letters_take_two_columns_and_a_long_name_leaves_room() -> None:
    named = job(1, name="模型训练-超长的名字", state=JobState.FAILED)
    plain = job(2, name="x" * 150, state=JobState.FAILED)
    assert cut(named.name, 12) == "模型训练-超…"
    shown = frame(lines([named, plain], View()), [named], "", [], 80).splitlines()
    places = {row[0]: row.index("FAILED") for row in shown[-2:]}
    assert places["1"] + 5 == places["2"]  # five letters of the first name take two columns
    (line,) = lines([plain], View())
    assert "FAILED" in about(line)[0][:40]
