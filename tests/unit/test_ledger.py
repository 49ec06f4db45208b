"""A group's ledger: what is written into a folder that others may write to, and read from it."""

import json
import multiprocessing
import os
import pwd
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpckit.errors import OutsideError
from hpckit.run_folders.ledger import Entry, append, of_cluster, read_ledger

ME = pwd.getpwuid(os.getuid()).pw_name
NOW = 1_790_000_000.0
HOST = socket.gethostname().partition(".")[0]
ENTRY = Entry(
    user=ME, job_id="7", cluster="c", start=NOW - 3600, end=NOW, nodes=1, gpus=2, state="COMPLETED",
    utilization_percent=40.0, energy_joules=1e6, workload="ddp", name="train",
)  # fmt: skip
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW + 60)


def put(folder: Path, name: str, *rows: Any) -> Path:
    """Write a file as anybody could."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def row(**changes: Any) -> dict[str, Any]:
    return {"user": ME, "job_id": "9", "start": NOW - 100, "end": NOW - 50, **changes}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = append(tmp_path, ENTRY)
    assert path.name == f"{ME}-2026-09.{HOST}.jsonl"
    append(tmp_path, replace(ENTRY, job_id="8", name="\u202e\n'" * 9000))
    assert len(path.read_bytes().splitlines()) == 2
    found = read_ledger(tmp_path, NOW - 100)
    assert (found.entries[0], found.left_out) == (ENTRY, {})
    assert len(path.read_bytes().splitlines()[1]) < 4000


def test_a_line_is_of_whoever_runs_the_job_whatever_its_record_says(tmp_path: Path) -> None:
    append(tmp_path, replace(ENTRY, user="somebody"))
    assert [entry.user for entry in read_ledger(tmp_path, 0).entries] == [ME]


@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o644), (0o2770, 0o640), (0o700, 0o600)])
def test_those_read_it_who_may_read_the_folder(tmp_path: Path, folder: int, file: int) -> None:
    tmp_path.chmod(folder)
    before = os.umask(0)
    try:
        path = append(tmp_path, ENTRY)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o7777 == file


def test_an_attempt_counts_by_its_newest_line(tmp_path: Path) -> None:
    append(tmp_path, replace(ENTRY, end=NOW - 60, utilization_percent=1.0))
    append(tmp_path, ENTRY)
    append(tmp_path, replace(ENTRY, restart=1))
    append(tmp_path, replace(ENTRY, cluster="other"))
    found = read_ledger(tmp_path, 0).entries
    assert found == [ENTRY, replace(ENTRY, restart=1), replace(ENTRY, cluster="other")]
    assert of_cluster(found, "c") == found[:2]
    assert read_ledger(tmp_path, NOW + 1).entries == []


def link(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def hard_link(path: Path, precious: Path) -> None:
    path.hardlink_to(precious)


def pipe(path: Path, _precious: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, _precious: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("trap", [link, hard_link, pipe, folder])
def test_nothing_is_written_through_what_another_put_there(
    tmp_path: Path, trap: Callable[[Path, Path], None]
) -> None:
    precious, ledger = tmp_path / ".bashrc", tmp_path / "ledger"
    precious.write_text("mine\n")
    ledger.mkdir()
    trap(ledger / f"{ME}-2026-09.{HOST}.jsonl", precious)
    path = append(ledger, ENTRY)
    assert path.name.startswith(f"{ME}-2026-09.{HOST}-")
    assert precious.read_text() == "mine\n"
    found = read_ledger(ledger, 0)
    assert ENTRY in found.entries
    assert len(found.entries) == 1


@as_root
def test_a_strangers_file_is_left_out_and_counted(tmp_path: Path) -> None:
    append(tmp_path, ENTRY)
    theirs = put(tmp_path, f"{ME}-2026-09.evil.jsonl", row(gpus=8))
    os.chown(theirs, 1, 1)
    nobodys = put(tmp_path, "alice-2026-09.n1.jsonl", row(user="alice"))
    os.chown(nobodys, 987_654, 1)
    found = read_ledger(tmp_path, 0)
    assert found.entries == [ENTRY]
    assert list(found.notes()) == [
        "ledger: alice-2026-09.n1.jsonl left out: its owner, user 987654, is not known here",
        f"ledger: {ME}-2026-09.evil.jsonl left out: it belongs to daemon",
    ]
    assert list(found.notes(hide_names=True)) == ["of the ledger 2 whole files are left out"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("{", "it is not JSON"),
        ("[" * 900, "it is not JSON"),
        ('"\\ud800"', "must be a mapping"),
        ({}, "'user' is missing"),
        (row(user="root2"), "it names another user"),
        (row(job_id="; rm"), "'; rm' cannot be a job's id"),
        (row(end=NOW - 200), "its start and end cannot be"),
        (row(end=NOW + 9 * 86400), "its start and end cannot be"),
        (row(start=1), "its start and end cannot be"),
        (row(start="now"), "'start' is"),
        (row(gpus=2, utilization_percent=101), "'utilization_percent' is"),
        (row(gpus=2, utilization_percent=True), "'utilization_percent' is"),
        (row(gpus=65), "no job has 65 GPUs on 1 nodes"),
        (row(gpus=1, energy_joules=1e12), "its GPUs cannot have used that much energy"),
        (row(name="x" * 5000), "it has 5"),
        (row(end=1e300), "'end' is"),
    ],
)
def test_a_line_that_cannot_be_is_left_out_and_counted(
    tmp_path: Path, wrong: Any, why: str
) -> None:
    name = f"{ME}-2026-09.n1.jsonl"
    put(tmp_path, name, row(), wrong, "", wrong, row(job_id="10", later_version="knows more"))
    found = read_ledger(tmp_path, 0)
    assert [entry.job_id for entry in found.entries] == ["9", "10"]
    (note,) = found.notes()
    assert note.startswith(f"ledger: 2 lines of {name} left out: ")
    assert why in note


def test_each_reason_is_said_with_its_count(tmp_path: Path) -> None:
    others, late = [row(user="root2")] * 3, [row(end=NOW - 200)] * 2
    put(tmp_path, f"{ME}-2026-09.n1.jsonl", *late, row(), *others, *late, "{")
    put(tmp_path, f"{ME}-2026-10.n1.jsonl", *(row(gpus=65 + at) for at in range(9)), *others)
    first, second = read_ledger(tmp_path, 0).notes()
    name = f"{ME}-2026-09.n1.jsonl"
    begun = f"ledger: 8 lines of {name} left out: its start and end cannot be (4); it names another"
    assert first.startswith(f"{begun} user (3); it is not JSON")
    assert first.endswith(" (1)")
    assert second.startswith(
        f"ledger: 12 lines of {ME}-2026-10.n1.jsonl left out: it names another"
    )
    assert second.endswith("; other reasons (5)")


def test_files_of_any_size_and_kind_do_no_harm(tmp_path: Path) -> None:
    put(tmp_path, "notes.txt", "x")
    put(tmp_path, f"{ME}-2026-01.n1.jsonl", "not of this time")
    with (tmp_path / f"{ME}-2026-09.huge.jsonl").open("wb") as stream:
        stream.truncate(1 << 40)
    os.mkfifo(tmp_path / f"{ME}-2026-09.pipe.jsonl")
    (tmp_path / f"{ME}-2026-09.dir.jsonl").mkdir()
    (tmp_path / f"{ME}-2026-09.link.jsonl").symlink_to(put(tmp_path, "elsewhere", row()))
    append(tmp_path, ENTRY)
    found = read_ledger(tmp_path, NOW - 7200)
    assert found.entries == [ENTRY]
    assert [*found.left_out.values()] == [
        {"it is not a regular file": None}, {f"it has {1 << 40} bytes": None},
        {"it is a link": None}, {"it is not a regular file": None},
    ]  # fmt: skip


def test_of_others_nothing_is_read_or_said_where_one_user_is_asked_for(tmp_path: Path) -> None:
    append(tmp_path, ENTRY)
    put(tmp_path, "alice-2026-09.n1.jsonl", row(user="alice"))
    assert read_ledger(tmp_path, 0, [ME]).left_out == {}
    assert read_ledger(tmp_path, 0, [ME]).entries == [ENTRY]
    assert read_ledger(tmp_path, 0, ["bob"]).entries == []


def test_half_a_line_of_a_full_disk_costs_that_line_alone(tmp_path: Path) -> None:
    path = append(tmp_path, ENTRY)
    path.write_bytes(path.read_bytes() + b'{"user":"a')
    append(tmp_path, replace(ENTRY, job_id="8"))
    found = read_ledger(tmp_path, 0)
    assert [entry.job_id for entry in found.entries] == ["7", "8"]
    assert [sum(why.values()) for why in found.left_out.values()] == [1]


def test_a_folder_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        append(tmp_path / "gone", ENTRY)
    with pytest.raises(OutsideError, match="cannot be read: No such file"):
        read_ledger(tmp_path / "gone", 0)


def _write_many(folder: Path, first: int) -> None:
    for number in range(first, first + 50):
        append(folder, replace(ENTRY, job_id=str(number)))


def test_jobs_that_end_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(tmp_path, at * 50)) for at in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = read_ledger(tmp_path, 0)
    assert {int(entry.job_id) for entry in found.entries} == set(range(200))
    assert found.left_out == {}
