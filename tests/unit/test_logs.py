import errno
import os
from pathlib import Path
from typing import IO

import pytest

from hpckit.errors import NotFoundError
from hpckit.files import open_regular
from hpckit.run_folders.logs import follow, log_files, read_all
from hpckit.run_folders.runs import Run
from tests.conftest import write_files
from tests.unit.made import make_run


def logged(tmp_path: Path, **logs: str) -> Run:
    run = make_run(tmp_path)
    write_files(
        run.dir, {f"logs/{name.replace('_', '.')[1:]}": text for name, text in logs.items()}
    )
    return run


def names(files: list[Path]) -> list[str]:
    return [path.name for path in files]


def test_rank_zero_is_shown_unless_told_otherwise(tmp_path: Path) -> None:
    run = logged(tmp_path, _0_out="a", _0_err="", _1_out="b", _1_err="c", _10_out="d")
    assert names(log_files(run)) == ["0.out"]
    assert names(log_files(run, 1)) == ["1.out", "1.err"]
    assert names(log_files(run, 3)) == []
    assert names(log_files(run, every=True)) == ["0.out", "1.out", "1.err", "10.out"]


def test_before_any_rank_the_job_script_is_shown(tmp_path: Path) -> None:
    run = logged(tmp_path)
    assert log_files(run) == []
    (run.dir / "job.out").write_text("module: not found")
    assert names(log_files(run)) == ["job.out"]


@pytest.mark.parametrize("number", [-1, 4])
def test_a_rank_the_run_has_not_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(
        NotFoundError, match=f"Rank {number} does not exist: this run has ranks 0 to 3"
    ):
        log_files(logged(tmp_path), number)


def test_reading_gives_everything_also_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\xff" + b"b" * 200_000)
    assert "".join(text for _, text in read_all([path], [])) == "a\ufffd" + "b" * 200_000


def test_following_goes_on_until_over_and_sees_files_that_appear(tmp_path: Path) -> None:
    first, second = tmp_path / "0.out", tmp_path / "0.err"
    first.write_text("one\n")
    steps = iter(
        [
            lambda: False,
            lambda: bool(second.write_text("late\n")) and False,
            lambda: first.write_text("one\ntwo\n") > 0,
            lambda: True,
        ]
    )
    found = [
        (path.name, text)
        for path, text in follow(
            lambda: [path for path in (first, second) if path.exists()],
            lambda: next(steps)(),
            [],
        )
    ]
    assert found == [("0.out", "one\n"), ("0.err", "late\n"), ("0.out", "two\n")]


def test_a_log_that_is_emptied_while_it_is_followed_is_read_from_its_beginning(
    tmp_path: Path,
) -> None:
    path = tmp_path / "0.out"
    path.write_bytes(b"a long line\xc3")  # half a letter, whose end never comes
    steps = iter([lambda: 0, lambda: path.write_text("new\n"), path.unlink, lambda: 0])
    again = iter([False, False, False, True])

    def over() -> bool:
        next(steps)()
        return next(again)

    found = follow(lambda: [path] if path.exists() else [], over, [])
    assert [text for _, text in found] == ["a long line", "new\n"]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
@pytest.mark.parametrize("last", [False, True])
def test_a_log_that_a_disk_refuses_now_is_followed_on(
    tmp_path: Path, number: int, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, damaged = tmp_path / "0.out", list[str]()
    path.write_text("one\n")
    early = [False, False, False, True] if last else [False, True, True, False]
    fails = iter([*early, False, False, False])

    def opened(name: Path) -> IO[bytes]:
        if next(fails):
            raise OSError(number, os.strerror(number))
        return open_regular(name)

    monkeypatch.setattr("hpckit.run_folders.logs.open_regular", opened)
    monkeypatch.setattr("hpckit.run_folders.logs._PAUSE_S", 0)
    steps = iter([lambda: 0, lambda: path.write_text("one\ntwo\n"), lambda: 0, lambda: 0])
    over = iter([False, False, False, True, True])
    pieces = follow(lambda: [path], lambda: (next(steps, int)(), next(over))[1], damaged)
    assert "".join(text for _, text in pieces) == "one\ntwo\n"
    assert damaged == []


def test_a_log_that_stays_stale_is_said_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(_path: Path) -> IO[bytes]:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr("hpckit.run_folders.logs.open_regular", stale)
    monkeypatch.setattr("hpckit.run_folders.run_files._PAUSES_S", ())
    damaged: list[str] = []
    assert list(follow(lambda: [tmp_path / "0.out"], lambda: True, damaged)) == []
    assert damaged == ["0.out: Stale file handle"]


def test_a_letter_that_two_pieces_share_is_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("x" + "é" * 80_000)
    assert "".join(text for _, text in read_all([path], [])) == path.read_text()
    parts = [text for _, text in follow(lambda: [path], lambda: True, [])]
    assert "".join(parts) == path.read_text()
