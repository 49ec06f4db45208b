"""What SIGTERM means to a job, and when its script gets it."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from hpckit.errors import CommandError
from hpckit.payload import ending
from hpckit.payload.ending import Ending
from hpckit.payload.task import Task
from hpckit.run_folders.ranks import RankRecord, write_rank
from hpckit.slurm.preemption import parse_fate
from hpckit.stop_marks import OVER, PREEMPTED, REQUEUED, add_mark, marks_of

# squeue -O JobID,State,RestartCnt,PreemptTime of Slurm 22.05.8, padded as it pads.
AT = "2026-11-23T03:18:22"


@pytest.mark.parametrize(
    ("row", "restarts", "fate"),
    [
        (f"RUNNING 0 {AT}", 0, PREEMPTED),
        (f"SIGNALING 0 {AT}", 0, PREEMPTED),
        (f"RUNNING 2 {AT}", 2, PREEMPTED),
        ("COMPLETING 1 N/A", 0, REQUEUED),
        ("PENDING 1 N/A", 0, REQUEUED),
        ("COMPLETING 1 N/A", 1, OVER),
        (f"COMPLETING 0 {AT}", 0, OVER),  # cancelled in its grace time
        ("CANCELLED 0 N/A", 0, OVER),
        ("TIMEOUT 0 N/A", 0, OVER),
        ("RUNNING 0 N/A", 0, OVER),  # its step alone ends
    ],
)
def test_what_squeue_says_tells_a_preemption_from_an_end(
    row: str, restarts: int, fate: str
) -> None:
    words = row.split()
    text = "".join(word.ljust(30) for word in ("12", *words))
    other = "".join(word.ljust(30) for word in ("11", "PENDING", "9", "N/A"))
    assert parse_fate(f"{other}\n{text}\n", "12", restarts) == fate


@pytest.mark.parametrize("text", ["", "11 RUNNING 0 N/A\n", "12 RUNNING\n"])
def test_a_job_that_squeue_does_not_name_is_not_known(text: str) -> None:
    with pytest.raises(CommandError, match="does not know job 12"):
        parse_fate(text, "12", 0)


class Rank:
    """Stands for what one supervisor runs."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.listens: bool | None = True

    def noted(self, signum: int) -> None:
        """Take no notice."""

    def stop(self, signum: int, _frame: FrameType | None = None) -> None:
        self.heard.append(signal.Signals(signum).name)

    def warn(self) -> None:
        self.heard.append("warning")

    def heeds(self) -> bool | None:
        return self.listens


def one(folder: Path, *, asks: bool = False, **changes: object) -> tuple[Rank, Ending]:
    """Give a supervisor's part that does not ask by itself, or does."""
    values: dict[str, object] = {"executor": "slurm", "max_requeues": 2, **changes}
    task = Task(
        run_dir=str(folder),
        run_id="r",
        launcher="srun",
        nodes=2,
        tasks_per_node=1,
        command=("true",),
        python=("python",),
        device="cpu",
        **values,  # type: ignore[arg-type]
    )
    rank = Rank()
    return rank, Ending(task, rank, asks=asks)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Give the time that passes, in place of the clock's."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


def test_the_other_ranks_wait_for_what_rank_0_finds_out(
    tmp_path: Path, quick: Callable[[float], None]
) -> None:
    rank, end = one(tmp_path)
    end.handle(signal.SIGTERM)
    end.look()
    assert rank.heard == []
    add_mark(marks_of(tmp_path, 0), 0, PREEMPTED)
    quick(1)
    end.look()
    quick(3600)
    end.look()
    assert rank.heard == ["warning"]
    add_mark(marks_of(tmp_path, 0), 0, OVER)
    quick(1)
    end.look()
    assert rank.heard == ["warning", "SIGTERM"]
    end.handle(signal.SIGTERM)  # from now on at once
    assert rank.heard == ["warning", "SIGTERM", "SIGTERM"]


def test_one_other_asks_in_the_place_of_rank_0(
    tmp_path: Path, quick: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose supervisor was killed."""
    asked: list[str] = []

    def fate(_self: object) -> str:
        asked.append("squeue")
        return OVER

    monkeypatch.setattr("hpckit.schedulers.slurm.Slurm.fate", fate)
    others = [one(tmp_path) for _ in range(3)]
    for _, end in others:
        end.handle(signal.SIGTERM)
    for seconds, heard in ((1, []), (ending._SILENT_S, []), (1, ["SIGTERM"])):
        quick(seconds)
        for _, end in others:
            end.look()
        assert [rank.heard for rank, _ in others] == [heard] * 3
    assert asked == ["squeue"]


def test_without_a_word_of_rank_0_the_script_ends(
    tmp_path: Path, quick: Callable[[float], None]
) -> None:
    rank, end = one(tmp_path)
    add_mark(marks_of(tmp_path, 0), 1, PREEMPTED)  # of another attempt
    end.handle(signal.SIGTERM)
    quick(ending._ANSWER_S + 1)
    end.look()
    assert rank.heard == ["SIGTERM"]


@pytest.mark.parametrize(("listens", "after_s"), [(False, 1), (True, 25), (None, 25)])
def test_a_script_that_saves_has_most_of_slurms_killwait(
    tmp_path: Path, quick: Callable[[float], None], monkeypatch, listens: bool | None, after_s: int
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("# KillWait=3\nKillWait = 36\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    rank, end = one(tmp_path)
    rank.listens = listens
    end.handle(signal.SIGTERM)
    add_mark(marks_of(tmp_path, 0), 0, REQUEUED)
    end.look()
    assert rank.heard == (["warning", "SIGTERM"] if listens is False else ["warning"])
    quick(after_s)
    end.look()
    assert rank.heard == ["warning", "SIGTERM"]


def test_where_hpckit_may_not_requeue_a_script_that_does_not_listen_ends(tmp_path: Path) -> None:
    for most, heard in ((1, ["warning"]), (0, ["warning", "SIGTERM"])):
        rank, end = one(tmp_path, max_requeues=most, chain=1)
        rank.listens = False
        end.handle(signal.SIGTERM)
        add_mark(marks_of(tmp_path, 0), 0, PREEMPTED)
        end.look()
        assert rank.heard == heard


@pytest.mark.parametrize("changes", [{"max_requeues": 0}, {"executor": "local"}])
def test_where_nothing_may_go_on_sigterm_is_passed_on_at_once(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    rank, end = one(tmp_path, **changes)
    end.handle(signal.SIGTERM)
    assert rank.heard == ["SIGTERM"]


@pytest.mark.parametrize("fate", [PREEMPTED, OVER])
def test_why_a_job_that_does_not_go_on_was_ended_is_written_down(
    tmp_path: Path, quick: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    """Its rank 0 asks once, and the others stay for as long: srun ends a step that has failed."""
    answers: list[object] = [CommandError("squeue was killed", argv=("squeue",)), fate]

    def answer(_self: object) -> str:
        found = answers.pop(0)
        if isinstance(found, CommandError):
            raise found
        return str(found)

    slept: list[float] = []
    monkeypatch.setattr("hpckit.schedulers.slurm.Slurm.fate", answer)
    monkeypatch.setattr(time, "sleep", lambda seconds: (slept.append(seconds), quick(seconds)))
    ranks = [one(tmp_path, asks=number == 0, max_requeues=0) for number in range(3)]
    for rank, end in ranks:
        end.handle(signal.SIGTERM)
        end.handle(signal.SIGTERM)
        assert rank.heard == ["SIGTERM"] * 2  # nobody waits to end
    first, second, third = (end for _, end in ranks)
    second.hear_why()  # which rank 0 has not answered
    assert sum(slept) == pytest.approx(ending._SILENT_S)
    first.handle(signal.SIGTERM)
    ranks[0][1].wonder()
    first.hear_why()
    assert first.said() == {fate}
    first.hear_why()
    assert answers == []
    third.wonder()
    slept.clear()
    third.hear_why()
    assert slept == []
    assert not first.settle() or fate == PREEMPTED


def test_after_another_ranks_failure_sigterm_is_passed_on_at_once(tmp_path: Path) -> None:
    rank, end = one(tmp_path)
    failed = RankRecord(
        rank=1, restart=0, host="c2", device="cpu", pid=1, started=1.0, ended=2.0, exit_code=1
    )
    write_rank(tmp_path, failed)
    end.handle(signal.SIGTERM)
    assert rank.heard == ["SIGTERM"]
    rank, end = one(tmp_path / "none")
    end.handle(signal.SIGINT)
    assert rank.heard == ["SIGINT"]
