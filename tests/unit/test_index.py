"""The index of runs: appended to by many at once, damaged, and made anew from the folders."""

import errno
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import hpckit
from hpckit.api.run import Run as Handle
from hpckit.errors import OutsideError
from hpckit.file_locks import append_lines, held_to_append
from hpckit.files import replace_file
from hpckit.run_folders import index
from hpckit.run_folders.find import find_runs, newest_runs
from hpckit.run_folders.index import add_to_index, entry_of, index_line, index_path, read_index
from hpckit.run_folders.reindex import forget_gone, rebuild
from hpckit.run_folders.runs import read_run
from tests.conftest import Answer, write_files
from tests.unit.made import make_run

Cli = Callable[..., Answer]


def indexed() -> list[str]:
    return [row.run_id for row in read_index()[0]]


def test_a_mistyped_latest_is_told_so(cli: Callable[..., Answer], here: Path) -> None:
    for command in ("status", "stats"):
        said = cli(command, "lastest").err
        assert "There is no run 'lastest' in " in said
        assert "Did you mean `latest`? See `hpckit jobs`" in said
        assert "Did you mean" not in cli(command, "training").err


def test_a_line_that_was_cut_off_costs_no_other(here: Path, cli: Cli) -> None:
    first, second = make_run(here / "a", "one"), make_run(here / "a", "two", job_id="12")
    add_to_index([first])
    torn = index_path().read_bytes() + index_line(entry_of(first)).encode()[:-20]
    index_path().write_bytes(torn)
    add_to_index([second])
    assert indexed() == ["two", "one"]
    said = cli("jobs", "--json")
    assert said.status == 0
    (damage,) = json.loads(said.out)["damaged"]
    assert damage["run_dir"] == str(index_path())
    assert "a line is damaged in your index" in damage["why"]
    assert "hpckit jobs --rebuild" in cli("jobs").err
    assert "damaged in your index" in cli("status", "13").err
    assert cli("jobs", "--rebuild").status == 0
    assert "damaged" not in cli("jobs").err
    assert "damaged" not in cli("status", "13").err


def test_the_index_of_a_full_disk_has_whole_lines(here: Path, monkeypatch) -> None:
    run = make_run(here / "a", "one")
    assert add_to_index([run]) == ""
    whole, real = index_path().read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, text: real(descriptor, text[:10]))
    assert add_to_index([run]) == (
        f"your index {index_path()} cannot be written: {os.strerror(errno.ENOSPC)}"
    )
    assert index_path().read_bytes() == whole
    with (
        held_to_append(index_path()) as (descriptor, _),
        pytest.raises(OSError, match=os.strerror(errno.ENOSPC)),
    ):
        append_lines(descriptor, b"more than ten letters\n")


def _add_many(root: Path, first: int) -> None:
    for number in range(first, first + 40):
        add_to_index([make_run(root, f"r{number}", job_id=str(number))])


@pytest.mark.long
def test_many_add_and_one_rebuilds_and_no_line_is_lost(here: Path) -> None:
    context = multiprocessing.get_context("fork")
    adding = [context.Process(target=_add_many, args=(here / "a", at * 40)) for at in range(4)]
    for row in adding:
        row.start()
    while any(row.is_alive() for row in adding):
        rebuild([])  # looks into no folder, so each line must stay that is there
    for row in adding:
        row.join()
        assert row.exitcode == 0
    assert sorted(indexed()) == sorted(f"r{number}" for number in range(160))


def test_a_file_put_in_the_place_of_the_one_that_was_waited_for_gets_the_line(here: Path) -> None:
    path = here / "file"
    with held_to_append(path) as (first, held):
        assert held
        replace_file(path, "new\n")
        with held_to_append(path) as (descriptor, _):
            append_lines(descriptor, b"line\n")
        append_lines(first, b"lost\n")
    assert path.read_text() == "new\nline\n"


def test_the_index_is_made_anew_of_all_folders_there_are(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ("known", "torn", "site", "environment", "runs", "given")
    for number, place in enumerate(places):
        make_run(here / place, f"in-{place}", job_id=str(number), submitted_at=float(number))
    other = make_run(here / "known", "known-too", job_id="77")
    add_to_index([other])
    with index_path().open("a") as stream:
        stream.write('{"job_id": "1", "run_id": 5, "dir": "%s"}\n' % (here / "torn" / "in-torn"))
    write_files(here, {"templates/sites/x.yaml": "description: x\nruns: $HOME/../work/site\n"})
    monkeypatch.setenv("HPCKIT_RUNS", str(here / "environment"))
    said = cli("jobs", "--rebuild", "--runs", "given", "--json")
    assert said.status == 0, said.err
    found = {Path(row["dir"]).name: row for row in json.loads(said.out)["folders"]}
    assert {name: row["runs"] for name, row in found.items()} == {
        **dict.fromkeys(places, 1), "known": 2
    }  # fmt: skip
    assert sum(row["new"] for row in found.values()) == 6
    assert json.loads(said.out)["torn"] == 1
    assert indexed()[:6] == ["known-too", *(f"in-{place}" for place in reversed(places))][:6]
    assert {run.run_id for run in newest_runs(here / "nowhere", None)} == set(indexed())
    again = hpckit.rebuild_index(runs="given")
    assert sum(row.new for row in again.folders) == 0
    assert len(indexed()) == 7


def test_only_lines_of_runs_that_are_certainly_gone_are_taken_out(here: Path, cli: Cli) -> None:
    for name in ("gone", "stays", "damaged"):
        add_to_index([make_run(here / "a", name, job_id=name.replace("s", ""))])
    add_to_index([make_run(here / "unmounted", "there", job_id="5")])
    (here / "a" / "damaged" / "run.json").write_text("{")
    (here / "a" / "gone").rename(here / "moved")
    (here / "unmounted").rename(here / "put-away")
    said = cli("jobs", "--rebuild")
    assert said.status == 0
    assert "Lines of removed runs taken out of the index: 1" in said.err
    assert f"in {here / 'unmounted'}" in said.err
    assert "a/damaged/run.json is damaged" in said.err
    assert sorted(indexed()) == ["damaged", "stays", "there"]
    (here / "a" / "stays").rename(here / "moved-too")
    assert forget_gone() == 1
    assert sorted(indexed()) == ["damaged", "there"]
    assert forget_gone() == 0
    (here / "unmounted").mkdir()  # an empty place where a file system goes
    assert forget_gone() == 0


def test_a_chain_keeps_the_ids_of_all_its_jobs_when_lines_are_taken_out(here: Path) -> None:
    add_to_index([make_run(here / "a", "chain", job_id="11", chain=["11", "12", "13"])])
    add_to_index([make_run(here / "b", name, job_id=name) for name in ("21", "22", "23")])

    def found() -> list[str]:
        return [run.run_id for run in find_runs("12", here / "runs")]

    assert found() == ["chain"]
    (here / "b" / "21").rename(here / "moved")
    assert forget_gone() == 1
    assert found() == ["chain"]
    (here / "b" / "22").rename(here / "moved-too")
    assert rebuild([here / "b"]).dropped == 1
    assert found() == ["chain"]


def test_an_index_that_is_no_file_is_said_and_never_waited_for(here: Path, cli: Cli) -> None:
    run = make_run(here / "runs", "one")
    index_path().parent.mkdir(parents=True)
    for make in (index_path().mkdir, lambda: os.mkfifo(index_path())):
        make()
        add_to_index([run])
        assert f"your index {index_path()} cannot be read" in cli("jobs").err
        assert "one" in cli("jobs").out
        said = cli("jobs", "--rebuild")
        assert (said.status, said.out) == (3, "")
        assert "cannot be written" in said.err
        if index_path().is_dir():
            index_path().rmdir()
    index_path().unlink()
    assert cli("jobs", "--rebuild").status == 0
    assert indexed() == ["one"]
    assert cli("jobs", "--rebuild", "--runs", "nowhere").status == 2


def test_an_index_that_another_command_keeps_is_left_as_it_is(here: Path, monkeypatch) -> None:
    add_to_index([make_run(here / "a", "one")])
    monkeypatch.setattr("hpckit.file_locks._LOCKED_S", 0.0)
    with held_to_append(index_path()), pytest.raises(OutsideError, match="run this again later"):
        rebuild([])
    assert indexed() == ["one"]


def test_only_lines_that_may_mean_a_word_are_read(here: Path, monkeypatch) -> None:
    """`status` of 200 ids would read 200 times as many entries as there are lines."""
    # Numbers that stand in no name of a folder of pytest's, which are in the lines, too.
    runs = [make_run(here / "a", f"e-{n}", job_id=str(9_000_500 + n)) for n in range(30)]
    parts = {"job_id": "9000071", "whole": "9000070"}
    runs += [
        make_run(here / "a", f"arr_{n}", job_id=f"9000071_{n - 9}", array={**parts, "index": n})
        for n in range(10, 13)
    ]
    add_to_index(runs)
    read: list[str] = []

    def counted(kind: type, value: dict[str, str], **words: bool) -> object:
        read.append(value["run_id"])
        return real(kind, value, **words)

    real = index.rebuild
    monkeypatch.setattr(index, "rebuild", counted)
    array = [(word, 3) for word in ("9000071_2", "9000070_11", "9000070", "arr")]
    for word, count in (("9000517", 1), ("e-17", 1), *array):
        read.clear()
        found = find_runs(word, here / "nowhere")
        assert found
        assert all(word in (*run.names, run.whole, run.run_id.rpartition("_")[0]) for run in found)
        assert len(read) == count, word


def test_a_run_is_there_once_whatever_links_lead_to_it(here: Path) -> None:
    """A home's `runs` is often a link to the large disk: each run was listed twice."""
    (here / "scratch").mkdir()
    (here / "runs").symlink_to("scratch")
    made = [
        make_run(here / "scratch", f"r{at}", job_id=str(at), submitted_at=float(at))
        for at in range(1, 4)
    ]
    linked = [read_run(here / "runs" / run.run_id) for run in made]
    add_to_index(linked)
    for root in (here / "scratch", here / "runs", here / "runs" / ".." / "scratch"):
        found = newest_runs(root, None)
        assert [run.dir for run in found] == [run.dir for run in reversed(linked)]
        assert len(newest_runs(root, 2)) == 2
    assert [Handle(run) for run in made] == [Handle(run) for run in linked]
    assert len({Handle(run) for run in (*made, *linked)}) == 3
    assert hpckit.find(here / "scratch" / "r1") in hpckit.runs(runs=here / "runs")
