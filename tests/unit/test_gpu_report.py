"""The harness of `make test-gpu`, where there is no GPU: figures, reports, crashes, preparation."""

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jsonschema
import pytest

from tests.gpu import raw, runs, smi, surroundings
from tests.gpu.checks import Recorder, number
from tests.gpu.document import make_document, markdown, scrubbed
from tests.gpu.journal import Journal, Made, read_checks
from tests.gpu.raw import plain
from tests.gpu.runs import reason
from tests.pages import ROOT
from tests.patience import LONG_S
from tests.raisers import throw

SCHEMA = json.loads((ROOT / "tests/gpu/gpu-report.schema.json").read_text())
CAPTURES = ROOT / "tests/recorded/nvidia-smi"
COLUMNS = (
    "utilization.gpu", "memory.used", "memory.reserved", "memory.total", "power.draw",
    "clocks.current.sm", "clocks.current.memory", "temperature.gpu", "temperature.memory",
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "limits", "met"),
    [
        (0.91, {"at_least": 0.9}, True),
        (0.89, {"at_least": 0.9}, False),
        (3, {"at_most": 3}, True),
        (3.1, {"at_most": 3}, False),
        (24.1, {"near": 25, "within": 1}, True),
        (23.9, {"near": 25, "within": 1}, False),
        (5, {"at_least": 1, "at_most": 4}, False),
        (5, {}, None),
        (None, {"at_least": 0}, False),
        (None, {"near": 1, "within": 9}, False),
        (float("nan"), {"at_most": 1}, False),
        (1, {"near": float("nan"), "within": 9}, False),
    ],
)
def test_a_figure_keeps_its_limits_or_does_not(value, limits, met) -> None:
    recorder = Recorder()
    assert recorder.figure("x", value, **limits) is (met is not False)
    assert recorder.figures[0].met is met
    assert bool(recorder.misses()) is (met is False)


def test_limits_of_a_dry_run_are_told_and_not_held() -> None:
    recorder = Recorder(enforced=False)
    recorder.figure("x", 1, at_least=2)
    recorder.fact("y", "no", good=False)
    assert recorder.misses() == []
    assert recorder.figures[0].limit == ">= 2"


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.0, "3"), (0, "0"), (24.987, "24.99"), (1.23456e12, "1.235e+12"), (2e-5, "2.000e-05")],
)
def test_numbers_are_short(value, text) -> None:
    assert number(value) == text


def test_a_journal_outlives_a_torn_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    began = {"event": "began", "id": "a", "title": "A", "budget_s": 5.0, "at": 1.0}
    journal.put(began)
    journal.put({"event": "figure", "id": "a", "name": "x", "value": 1.0})
    with (tmp_path / "j").open("a") as stream:
        stream.write('{"event": "ended", "id": "a", "ver')
    (made,) = read_checks(journal.events())
    assert (made.verdict, made.figures) == ("running", [{"name": "x", "value": 1.0}])


def made(verdict: str, name: str = "t::a", **more) -> Made:
    figure = {"name": "sha|re", "value": 0.5, "unit": "", "limit": ">= 0.9", "met": False,
              "source": "s", "peer": "", "note": ""}  # fmt: skip
    return Made(id=name, title="A check", budget_s=5, verdict=verdict, seconds=1.0,
                figures=[figure], **more)  # fmt: skip


@pytest.mark.parametrize(
    ("verdicts", "missing", "over", "whole"),
    [
        (["passed", "not here"], [], True, "passed"),
        (["passed", "failed"], [], True, "failed"),
        (["passed", "crashed"], [], True, "failed"),
        (["passed"], ["t::z"], True, "failed"),
        (["not here"], [], True, "failed"),
        ([], [], True, "failed"),
        (["passed", "running"], [], False, "unfinished"),
    ],
)
def test_only_a_whole_report_has_passed(verdicts, missing, over, whole) -> None:
    checks = [made(word, f"t::{at}") for at, word in enumerate(verdicts)]
    expected = [row.id for row in checks] + missing
    document = make_document({"gpu": "X"}, checks, expected=expected, over=over)
    assert (document["verdict"], document["not_made"]) == (whole, missing)
    jsonschema.validate(document, SCHEMA)


def test_the_page_has_everything_and_says_what_is_left_out() -> None:
    checks = [
        made("failed", why="it is\nwrong"),
        made("not here", "t::b", why="no GPM"),
        made("passed", "t::c", absences=[("memory temperature", "not supported")]),
    ]
    page = markdown(make_document({"gpu": "X", "mig": "off"}, checks, dry=True, only="-k a"))
    for text in (
        "# hpckit on no GPU: failed", "no GPU was used", "`-k a`", "| MIG | off |", "it is\nwrong",
        "sha\\|re", "**NO**", "- A check: no GPM", "- A check: memory temperature: not supported",
        "names of the host",
    ):  # fmt: skip
        assert text in page
    assert markdown(make_document({"gpu": "X"}, checks)).startswith("# hpckit on X: failed")


def test_who_and_where_do_not_get_into_a_report() -> None:
    uuid = "GPU-8fe4d6b2-1c33-4a52-b0f3-0c6f0a1f2b3c"
    said = {"why": [f"{uuid} of ann on node-7 in /home/ann/hpckit/tests, not joanna"]}
    found = scrubbed(said, ["ann", "node-7", "/home/ann/hpckit", "x"])
    assert found == {"why": ["UUID of … on … in …/tests, not joanna"]}


@pytest.mark.parametrize(
    ("board", "sm", "power", "util"),
    [("h100-load", 100, 633.6, 100), ("h100-idle", 0, 69, 0), ("h100-mig-load", None, 438.6, None),
     ("l40s-load", 9.4, 108.2, 9)],
)  # fmt: skip
def test_real_captures_of_nvidia_smi_are_read(board, sm, power, util) -> None:
    lines = smi.read_dmon((CAPTURES / f"{board}.dmon").read_text(), 0)
    assert len(lines) == 5
    assert smi.mean_of(lines, "sm") == (None if sm is None else pytest.approx(sm))
    assert smi.mean_of(lines, "pwr") == pytest.approx(power)
    assert smi.read_dmon((CAPTURES / f"{board}.dmon").read_text(), 1) == []
    (row,) = smi.read_query((CAPTURES / f"{board}.csv").read_text(), COLUMNS)
    assert row["utilization.gpu"] == util
    assert (row["temperature.memory"] is None) == board.startswith("l40s")


def test_what_nvidia_smi_says_of_errors_is_no_number() -> None:
    text = (
        "Unable to determine the device handle\n50, 1, [N/A], 4, 5, 6, 7, 8, [Unknown Error]\n50,"
    )
    (row,) = smi.read_query(text, COLUMNS)
    assert (row["utilization.gpu"], row["memory.reserved"], row["temperature.memory"]) == (
        50, None, None,
    )  # fmt: skip


CHECKS = """
import os, signal, subprocess, sys, time
from tests.gpu.checks import check

@check("good", budget_s=40)
def test_a(report, machine): report.figure("one", 1, at_least=1)

@check("killed", budget_s=40)
def test_b(report, machine):
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    report.figure("before", child.pid)
    os.kill(os.getpid(), signal.SIGSEGV)

@check("not here", budget_s=40, needs=("MIG",))
def test_c(report, machine): raise AssertionError

@check("wedged", budget_s=0.1)
def test_d(report, machine): time.sleep(600)

@check("limit", budget_s=40)
def test_e(report, machine):
    report.figure("low", 1, at_least=2)
    report.absent("a thing", "it is not there")

@check("child", budget_s=9)
def test_f(report, machine):
    done = report.child([sys.executable, "-c", "import time; time.sleep(60)"], limit_s=0.5)
    assert done.returncode == -9 and "limit" in done.stderr

@check("raises", budget_s=40)
def test_g(report, machine): {}["missing"]
"""


@pytest.mark.long
def test_a_crash_and_a_hang_cost_only_their_own_checks(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "test_made.py").write_text(CHECKS)
    monkeypatch.setenv("HPCKIT_GPU_ENFORCE", "1")
    others = tmp_path / "folders of other pytests"
    others.mkdir()
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(others))
    code = (
        "import sys, tempfile; from pathlib import Path; from tests.gpu import __main__ as m; "
        "from tests.gpu import checks; checks._LIMIT_MORE_S = 4; "
        "m.Session.where = ('-p', 'tests.gpu.conftest', sys.argv.pop(1)); sys.exit(m.main())"
    )
    argv = [sys.executable, "-c", code, str(tmp_path), "--dry", "--out", str(tmp_path / "out")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads((tmp_path / "out/gpu-report.json").read_text())
    jsonschema.validate(document, SCHEMA)
    found = {row["title"]: row for row in document["checks"]}
    assert {title: row["verdict"] for title, row in found.items()} == {
        "good": "passed", "killed": "crashed", "not here": "not here", "wedged": "crashed",
        "limit": "failed", "child": "passed", "raises": "failed",
    }  # fmt: skip
    assert "SIGSEGV" in found["killed"]["why"]
    (child,) = found["killed"]["figures"]
    assert not Path(f"/proc/{child['value']:.0f}").exists(), "what it started goes on"
    assert "limit" in found["wedged"]["why"]
    assert found["limit"]["why"].startswith("low: 1, and the limit is >= 2")
    assert "KeyError: 'missing'" in found["raises"]["why"]
    absent = {(row["check"], row["what"]) for row in document["not_on_this_machine"]}
    assert absent == {("not here", ""), ("limit", "a thing")}
    assert document["verdict"] == "failed"
    assert list(others.iterdir()) == [], "pytest removes older ones beside its own"


CUT_OFF = """
import os, time
from tests.gpu.checks import check

@check("first", budget_s=1)
def test_a(report, machine):
    report.figure("made by", os.getpid())
    machine.keep("rows", [1, 2, None, "GPU-8fe4d6b2-1c33-4a52-b0f3-0c6f0a1f2b3c"])

@check("second", budget_s=100)
def test_b(report, machine):
    report.figure("until", report.until - time.monotonic(), at_least=60, at_most=301)
    time.sleep(float(os.environ["SECONDS"]))

@check("third", budget_s=1)
def test_c(report, machine): report.figure("one", 1, at_least=1)
"""


def session(
    tmp_path: Path, *words: str, seconds: float, said: Path | None = None
) -> "subprocess.Popen[str]":
    code = (
        "import sys; from tests.gpu import __main__ as m; "
        "m.Session.where = ('-p', 'tests.gpu.conftest', sys.argv.pop(1)); sys.exit(m.main())"
    )
    argv = [sys.executable, "-c", code, str(tmp_path), "--dry", "--out", str(tmp_path / "out")]
    environ = {**os.environ, "SECONDS": str(seconds), "HPCKIT_GPU_ENFORCE": "1"}
    with (said or tmp_path / "unread").open("w") as out:
        return subprocess.Popen([*argv, *words], cwd=ROOT, env=environ, text=True, stdout=out)


@pytest.mark.long
def test_a_report_that_was_cut_off_is_completed(tmp_path: Path) -> None:
    """By a job's end: SIGTERM first. SIGKILL leaves what there was, which is as good to go on."""
    (tmp_path / "test_made.py").write_text(CUT_OFF)
    journal = Journal(tmp_path / "out" / "gpu-report.part.jsonl")
    running = session(tmp_path, seconds=600, said=tmp_path / "said")
    deadline = time.monotonic() + LONG_S
    while not any(row.title == "second" for row in read_checks(journal.events())):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.terminate()
    assert running.wait(LONG_S) == 1
    assert "What was cut off: `make test-gpu ARGS=--go-on`" in (tmp_path / "said").read_text()
    report = tmp_path / "out" / "gpu-report.json"
    document = json.loads(report.read_text())
    assert [row["verdict"] for row in document["checks"]] == ["passed", "crashed"]
    assert document["checks"][1]["why"] == "all checks were ended by SIGTERM"
    assert [name.rpartition("::")[2] for name in document["not_made"]] == ["test_c"]
    assert session(tmp_path, "--go-on", seconds=0).wait(LONG_S) == 0
    again = json.loads(report.read_text())
    jsonschema.validate(again, SCHEMA)
    assert [row["verdict"] for row in again["checks"]] == ["passed"] * 3
    assert again["checks"][0] == document["checks"][0]
    assert again["not_made"] == []
    (kept,) = map(json.loads, (tmp_path / "out" / "gpu-report.raw.jsonl").read_text().splitlines())
    assert kept == {"check": "test_made.py::test_a", "what": "rows", "value": [1, 2, None, "UUID"]}


@dataclass(frozen=True, slots=True)
class Row:
    at: int
    gpus: tuple["Pair", ...]
    note: str | None = None


class Pair(NamedTuple):
    power: int | None
    memory: int


def test_raw_readings_have_names_and_nothing_that_is_unknown() -> None:
    row = Row(at=1, gpus=(Pair(None, 2), Pair(3, 4)))
    assert plain({"rows": [row], 5: (1, 2)}) == {
        "rows": [{"at": 1, "gpus": [{"memory": 2}, {"power": 3, "memory": 4}]}],
        "5": [1, 2],
    }


def test_raw_readings_stop_before_they_are_too_many(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(raw, "_MOST_BYTES", 300)
    keep = raw.keeper(tmp_path / "journal", "tests/gpu/test_x.py::test_y")
    for at in range(20):
        keep("row", at)
    lines = (tmp_path / raw.NAME).read_text().splitlines()
    assert 2 < len(lines) < 8
    assert json.loads(lines[0]) == {"check": "test_x.py::test_y", "what": "row", "value": 0}
    raw.keeper(None, "x")("row", 1)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["Traceback", "RuntimeError: no kernel", "[rank0]:[W1123 ...] destroy was not called"],
         "RuntimeError: no kernel"),
        (["train.py: error: rank 1: several ranks use cuda:0", "/usr/x.py:5: UserWarning: old"],
         "train.py: error: rank 1: several ranks use cuda:0"),
        (["torch.OutOfMemoryError: CUDA out of memory.", "", "ended at its limit of 9 s"],
         "ended at its limit of 9 s"),
        (["Killed"], "Killed"),
        ([], "nothing on stderr"),
    ],
)  # fmt: skip
def test_a_failed_programs_reason_is_not_a_librarys_last_warning(said, why) -> None:
    assert reason("\n".join(said)) == why


def test_a_program_ends_before_its_check_does() -> None:
    recorder = Recorder(until=time.monotonic() + 5.5)
    done = recorder.child([sys.executable, "-c", "import time; time.sleep(60)"], limit_s=50)
    assert done.returncode == -9
    assert reason(done.stderr) in ("ended at its limit of 0 s", "ended at its limit of 1 s")


@pytest.mark.long
def test_checks_are_left_out_where_nobody_asked_and_that_is_no_skip() -> None:
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "pyproject.toml",
        "-q",
        "tests/gpu/test_machine.py",
    ]
    environ = {**os.environ, "HPCKIT_NO_SKIPS": "1"}
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, env=environ)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "were left out: `make test-gpu` makes them" in done.stdout


@pytest.mark.long
def test_the_budgets_of_all_checks_fit_into_the_time() -> None:
    """Of checks for a MIG slice and for a whole GPU a machine makes one kind."""
    code = (
        "import pytest, sys; from tests.gpu.document import LIMIT_S\n"
        "class P:\n"
        "  def pytest_collection_finish(self, session):\n"
        "    marks = [item.get_closest_marker('gpu').kwargs for item in session.items]\n"
        "    spent = sum(row['budget_s'] for row in marks if 'MIG' not in row['needs'])\n"
        "    print('BUDGET', len(marks), spent, LIMIT_S)\n"
        "pytest.main(['-q', '--collect-only', '-m', 'gpu', 'tests/gpu'], plugins=[P()])\n"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = [row for row in done.stdout.splitlines() if row.startswith("BUDGET")]
    count, spent, limit = map(float, line.split()[1:])
    assert count > 30
    assert spent <= limit


def test_the_place_of_the_checks_files_has_room_and_lets_programs_run(
    tmp_path, monkeypatch
) -> None:
    small, good = tmp_path / "small", tmp_path / "good"
    small.mkdir()
    good.mkdir()
    assert surroundings.scratch_folder([tmp_path / "none", good]) == (good, "")
    usage = shutil.disk_usage(good)
    sizes = {small: usage._replace(free=2**20), good: usage}
    monkeypatch.setattr(surroundings.shutil, "disk_usage", sizes.get)
    assert surroundings.scratch_folder([small, good]) == (good, "")
    assert surroundings.scratch_folder([small]) == (small, "only 0.0 GiB are free")
    monkeypatch.setattr(surroundings.subprocess, "run", throw(PermissionError(13, "denied")))
    assert surroundings.lacking(good) == (
        "no program may run there, or nothing be written (denied)"
    )


def test_a_home_that_cannot_be_written_has_no_caches(tmp_path: Path) -> None:
    assert surroundings.caches({"HOME": str(tmp_path)}, tmp_path / "s") == {}
    found = surroundings.caches({"HOME": str(tmp_path / "none")}, tmp_path / "s")
    assert found["TRITON_CACHE_DIR"] == str(tmp_path / "s" / "triton_cache_dir")
    assert surroundings.caches({}, tmp_path).keys() == found.keys()


def test_variables_of_a_user_or_a_job_do_not_reach_the_programs() -> None:
    given = {
        "CUDA_LAUNCH_BLOCKING": "1", "PYTEST_ADDOPTS": "--cov", "SLURM_PROCID": "0", "PATH": "/bin",
        "PMIX_RANK": "0", "OMPI_COMM_WORLD_RANK": "0", "HPCKIT_BACKEND": "gloo",
        "HPCKIT_GPU_DRY": "/x", "NCCL_SOCKET_IFNAME": "ib0",
    }  # fmt: skip
    left = surroundings.outside_of_jobs(surroundings.undisturbed(given))
    assert left.keys() == {"PATH", "HPCKIT_GPU_DRY", "NCCL_SOCKET_IFNAME"}


def test_a_jobs_memory_is_the_room_of_its_programs(tmp_path: Path) -> None:
    proc, tree = tmp_path / "proc", tmp_path / "cgroup"
    job = tree / "slurm" / "job_7" / "step_0"
    job.mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    assert surroundings.host_room_bytes(proc, tree) is None
    (proc / "meminfo").write_text("MemTotal: 64 kB\nMemAvailable: 33554432 kB\n")
    (proc / "self" / "cgroup").write_text("0::/slurm/job_7/step_0\n")
    assert surroundings.host_room_bytes(proc, tree) == 32 * 2**30
    for folder, most in ((job, "max"), (job.parent, str(8 * 2**30))):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{7 * 2**30}\n")
        (folder / "memory.stat").write_text(f"anon 1\nfile {5 * 2**30}\n")
    assert surroundings.host_room_bytes(proc, tree) == 6 * 2**30  # 5 of the 7 are of files


def test_as_many_programs_run_at_once_as_have_room() -> None:
    room, most, now = runs.Room(3), [], []

    def work(ranks: int) -> None:
        with room.of(ranks):
            now.append(ranks)
            most.append(sum(now))
            time.sleep(0.01)
            now.remove(ranks)

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(work, [1, 2, 1, 2, 2, 1, 1, 2]))
        assert max(most) <= 3
        list(pool.map(work, [7, 1]))  # more than all: alone
    assert now == []


def test_somebody_elses_work_stands_above_all_figures() -> None:
    alone = made("failed", "tests/gpu/test_machine.py::test_alone", why="busy")
    page = markdown(make_document({"gpu": "X"}, [alone, made("failed")], expected=["t::z"]))
    assert page.index("Something else computed on this GPU") < page.index("| machine |")
    assert "ARGS=--go-on" in page
    quiet = made("passed", "tests/gpu/test_machine.py::test_alone")
    assert "Something else" not in markdown(make_document({"gpu": "X"}, [quiet]))


def test_a_field_that_an_old_nvidia_smi_lacks_is_told_by_it() -> None:
    said = 'Field "memory.reserved" is not a valid field to query.\n\n'
    assert smi.unknown_field(said) == "memory.reserved"
    assert smi.unknown_field("50, 1\n") is None


def test_a_user_without_a_name_and_a_home_has_no_secrets_of_these(monkeypatch) -> None:
    monkeypatch.setattr(raw.Path, "home", throw(RuntimeError("no home")))
    monkeypatch.setattr(raw.getpass, "getuser", throw(OSError("no name")))
    assert str(ROOT) in raw.secrets()


def test_a_place_for_the_report_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    argv = [sys.executable, "-m", "tests.gpu", "--dry", "--out", str(tmp_path / "file" / "out")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Name another folder: make test-gpu GPU_OUT=FOLDER" in done.stderr
    assert "Traceback" not in done.stderr
