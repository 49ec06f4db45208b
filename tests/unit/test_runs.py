import json
import os
import pwd
import re
from pathlib import Path
from typing import Any

import pytest

from hpckit.errors import NotFoundError, RequestError
from hpckit.run_folders.find import find_runs, newest_runs
from hpckit.run_folders.index import add_to_index, index_path
from hpckit.run_folders.run_files import write_json
from hpckit.run_folders.runs import Run, list_runs, new_run_id, read_run, runs_root
from tests.unit.made import make_run, run_record


def task(root: Path, index: int, array: str = "20", **changes: Any) -> Run:
    return make_run(
        root,
        f"a-1_{index}",
        job_id=f"{array}_{index}",
        array={"job_id": array, "index": index},
        **changes,
    )


def test_the_folder_of_runs_is_the_options_then_the_environments_then_the_sites(here: Path) -> None:
    home = Path.home()
    assert runs_root(Path("x"), "/site", {"HPCKIT_RUNS": "/env"}) == here / "x"
    assert runs_root(Path("~/x"), None, {}) == home / "x"
    assert runs_root(None, "/site", {"HPCKIT_RUNS": "~/env"}) == home / "env"
    assert runs_root(None, "$HOME/site", {}) == home / "site"
    assert runs_root(None, None, {"HPCKIT_RUNS": ""}) == here / "runs"


def test_a_sites_folder_of_runs_never_has_a_variable_for_its_name(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("USER", raising=False)
    me = pwd.getpwuid(os.getuid()).pw_name
    for word in ("$USER", "${USER}"):
        assert runs_root(None, f"/proj/{word}/runs", {}) == Path("/proj", me, "runs")
    monkeypatch.delenv("USERS", raising=False)
    with pytest.raises(RequestError, match=r"needs \$USERS, which is not set\. Set it, or name"):
        runs_root(None, "/proj/$USERS", {})
    monkeypatch.setenv("USER", "somebody")
    assert runs_root(None, "/proj/$USER", {}) == Path("/proj/somebody")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("ddp", "ddp-"),
        ("it's $(x) /..", "it-s-x-"),
        ("..", "run-"),
        ("é", "run-"),
        ("a" * 99, "a" * 40),
    ],
)
def test_a_run_id_is_a_safe_name_that_sorts_by_time(name: str, start: str) -> None:
    made = new_run_id(name)
    assert made.startswith(start)
    assert re.fullmatch(r"[A-Za-z0-9._-]+-\d{8}-\d{6}-[0-9a-f]{6}", made)
    assert new_run_id(name) != made


def test_json_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, NotFoundError),
        ("", RequestError),
        ('{"a": ', RequestError),
        ("[]", RequestError),
        ("null", RequestError),
        (json.dumps(run_record(plan=[])), RequestError),
        (json.dumps(run_record(submitted_at=None)), RequestError),
        (json.dumps(run_record(array={"job_id": 1})), RequestError),
        (json.dumps(run_record(array=[1])), RequestError),
    ],
)
def test_a_damaged_folder_is_an_error_of_ours(tmp_path: Path, content, error) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(error):
        read_run(tmp_path)


def test_listing_passes_over_what_is_no_run_or_damaged(here: Path) -> None:
    make_run(here / "runs", "good")
    (here / "runs" / "bad").mkdir()
    (here / "runs" / "bad" / "run.json").write_text("{")
    (here / "runs" / "other").mkdir()
    (here / "runs" / "file").touch()
    assert [run.run_id for run in list_runs(here / "runs")] == ["good"]
    assert list(list_runs(here / "absent")) == []


def test_a_run_is_found_by_every_name_it_has(here: Path) -> None:
    run = make_run(here / "runs", "ddp-1", job_id="77")
    for word in ("77", "ddp-1", "latest", str(run.dir), "./runs/ddp-1"):
        assert [found.dir.resolve() for found in find_runs(word, here / "runs")] == [run.dir]
    for word in ("7", "ddp", "", "77_0", "ddp-1/.."):
        with pytest.raises(NotFoundError):
            find_runs(word, here / "runs")


def test_an_array_is_found_whole_and_each_task_alone(here: Path) -> None:
    for index in (2, 10, 0):
        task(here / "runs", index)
    for word in ("20", "a-1"):
        assert [run.job_id for run in find_runs(word, here / "runs")] == ["20_0", "20_2", "20_10"]
    assert len(find_runs("latest", here / "runs")) == 3
    assert [run.job_id for run in find_runs("20_2", here / "runs")] == ["20_2"]
    assert [run.run_id for run in find_runs("a-1_10", here / "runs")] == ["a-1_10"]


def test_the_index_finds_runs_anywhere_and_only_them(here: Path) -> None:
    run = make_run(here / "elsewhere", "ddp-1", job_id="77")
    tasks = [task(here / "elsewhere", index) for index in (0, 1)]
    add_to_index([run, *tasks])
    empty = here / "runs"
    assert find_runs("77", empty)[0].dir == run.dir
    assert find_runs("latest", empty)[0].dir in {run.dir, *(row.dir for row in tasks)}
    assert len(find_runs("20", empty)) == 2
    assert len(newest_runs(empty, None)) == 3
    (run.dir / "run.json").unlink()
    with pytest.raises(NotFoundError):
        find_runs("77", empty)


def test_doctors_trials_are_never_the_latest(here: Path) -> None:
    own = make_run(here / "runs", "own", job_id="5", submitted_at=1.0, name="doctor-strange")
    job = "/opt/lib/hpckit/doctor/jobs/gpu_hello.py"
    for number, request in ((6, {"target": "ddp", "script": job}), (7, {"script": None})):
        trial = make_run(
            here / "runs", f"doctor-gpu-{number}", job_id=str(number), submitted_at=float(number),
            name="doctor-gpu", request=request,
        )  # fmt: skip
        add_to_index([trial])
        newest = own if number == 6 else trial
        assert [run.dir for run in find_runs("latest", here / "runs")] == [newest.dir]
    assert [run.job_id for run in find_runs("6", here / "runs")] == ["6"]


def test_a_lost_or_torn_index_costs_only_a_scan(here: Path) -> None:
    run = make_run(here / "runs", "ddp-1", job_id="77")
    path = index_path()
    assert find_runs("77", here / "runs")[0].dir == run.dir
    path.parent.mkdir(parents=True)
    path.write_text('{"dir": 5}\n[1]\n{"job_id": "77", "dir": "/gone"}\n{"job_id": "7\n\0\n')
    assert find_runs("77", here / "runs")[0].dir == run.dir
    path.unlink()
    path.mkdir()
    add_to_index([run])
    assert find_runs("latest", here / "runs")[0].dir == run.dir


def test_a_job_id_that_slurm_used_again_is_the_newest_run(here: Path) -> None:
    make_run(here / "runs", "old", job_id="5", submitted_at=1.0)
    make_run(here / "runs", "new", job_id="5", submitted_at=2.0)
    assert [run.run_id for run in find_runs("5", here / "runs")] == ["new"]


def test_the_newest_come_first_and_as_many_as_asked(here: Path) -> None:
    for number in range(4):
        run = make_run(here / "runs", f"r{number}", job_id=str(number), submitted_at=float(number))
        os.utime(run.dir / "run.json", (number, number))
    assert [run.run_id for run in newest_runs(here / "runs", 2)] == ["r3", "r2"]
    assert find_runs("latest", here / "runs")[0].run_id == "r3"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("indexed", [True, False])
def test_an_array_in_several_is_called_as_one(tmp_path: Path, indexed: bool) -> None:
    runs = [
        make_run(
            tmp_path, f"r_{number}", job_id=f"{10 + number // 2}_{number % 2}",
            array={"job_id": str(10 + number // 2), "index": number, "whole": "10"},
        )
        for number in range(5)
    ]  # fmt: skip
    if indexed:
        add_to_index(runs)

    def called(word: str) -> list[int]:
        return [run.task for run in find_runs(word, tmp_path)]

    assert called("10") == called("r") == called("latest") == [0, 1, 2, 3, 4]
    assert called("11") == [2, 3]
    assert called("11_1") == called("10_3") == called("r_3") == [3]
