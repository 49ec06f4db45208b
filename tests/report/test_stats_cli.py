"""`hpckit stats` as users and programs meet it, on runs with made-up samples."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from hpckit.api import job_stats
from hpckit.errors import JobError
from hpckit.job_ends.tracebacks import OUT_OF_MEMORY_SAMPLED
from hpckit.report.terminal import Style, blocks, style_of
from hpckit.stats.js1 import decode, from_record
from hpckit.stats.merge import merge
from hpckit.stats.samples.records import Note
from hpckit.stats.summary.figures import GpuUse, JobUse
from tests.conftest import Answer, document
from tests.js1 import encode
from tests.report.made import BEGAN_US, SCHEMA_FILE, make_run, write_samples

Cli = Callable[..., Answer]
BUSY, IDLE = [95.0] * 361, [0.0] * 361


@pytest.fixture
def run(here: Path) -> Path:
    folder = make_run(here / "runs")
    write_samples(folder / "samples", [BUSY, BUSY, BUSY, IDLE])
    return folder


def test_the_page_fits_a_screen_and_says_what_matters(run: Path, cli: Cli) -> None:
    answer = cli("stats", "latest")
    assert (answer.status, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    assert "\x1b" not in answer.out
    assert lines[0] == "Job local-abc123 train  COMPLETED"
    assert "4 GPUs (NVIDIA H200)" in answer.out
    [utilization] = [line for line in lines if line.startswith("GPU utilization")]
    assert utilization.endswith("71 %")
    assert "4.0 GPU-hours, 1.0 of them idle (25 %)" in answer.out
    assert "!! GPU 3 on n1" in answer.out
    assert "(gpu-unused)" in answer.out
    assert "hpckit resubmit local-abc123 --nodes 1 --gpus 3" in answer.out
    assert "samples (361 on 1 node, 100 % of the job)" in answer.out


def test_json_is_as_its_schema_says_and_as_the_page_shows(run: Path, cli: Cli) -> None:
    found = document(cli, "local-abc123")
    schema = json.loads(cli("stats", "--schema").out)
    jsonschema.validate(found, schema)
    assert schema == json.loads(SCHEMA_FILE.read_text())
    assert set(found) == set(schema["required"])
    summary = found["summary"]
    assert summary["gpu_utilization_percent"] == pytest.approx(95 * 3 / 4, abs=0.01)
    assert summary["gpu_hours"] == 4
    assert summary["gpu_hours_idle"] == 1
    # 100 W and 5 W for each percent, as made.
    assert summary["energy_joules"] == pytest.approx(3600 * (3 * 575 + 100), rel=1e-6)
    assert summary["power_watts_mean"] == pytest.approx((3 * 575 + 100) / 4)
    assert summary["cpu_efficiency_percent"] == pytest.approx(25)
    assert summary["memory_efficiency_percent"] == pytest.approx(12.5)
    assert summary["sm_active_percent"] == pytest.approx(95 * 3 / 4 / 2, abs=0.1)
    assert summary["samples"] == 361
    assert (found["nodes"], found["gpus"], found["elapsed_s"]) == (1, 4, 3600)
    assert found["sources"] == ["samples", "local"]
    assert found["origins"]["summary.gpu_utilization_percent"] == "samples"
    assert [gpu["idle_percent"] for gpu in found["per_gpu"]] == [0, 0, 0, 100]
    [unused] = [item for item in found["advice"] if item["id"] == "gpu-unused"]
    assert unused["severity"] == "red"
    assert unused["lost_gpu_hours"] == 1


@pytest.mark.long
@pytest.mark.parametrize("hours", [1, 9])
def test_a_session_is_used_by_a_person_and_is_not_resubmitted(
    here: Path, cli: Cli, hours: int
) -> None:
    made = make_run(here / "runs", session={"kind": "shell", "idle_s": None}, seconds=3600 * hours)
    write_samples(made / "samples", [[0.0] * (360 * hours + 1)])
    found = document(cli, "latest")
    assert found["interactive"] is True
    unused = [item for item in found["advice"] if item["id"] == "gpu-unused"]
    assert [item["severity"] for item in unused] == ["yellow"] * (hours == 9)
    assert "resubmit" not in json.dumps(found["advice"])


def test_stats_writes_the_summary_again(run: Path, cli: Cli) -> None:
    found = document(cli, "latest")
    assert json.loads((run / "summary.json").read_text()) == found
    lines = json.loads(Path(found["timeseries_file"]).read_text())["attempts"][0]
    assert [line["index"] for line in lines["gpu_utilization"]] == [0, 1, 2, 3]
    assert lines["width_s"] == 10
    known = [value for value in lines["gpu_utilization"][0]["values"] if value is not None]
    assert known[1:] == [95.0] * (len(known) - 1)


def test_somebody_elses_run_is_read_and_not_written(
    run: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    answer = cli("stats", run.name, "--json")
    assert f"note: run {run.name} and its contents belong to " in answer.err
    found = json.loads(answer.out)
    assert found["summary"]["gpu_hours"] == 4
    assert found["timeseries_file"] is None
    assert not (run / "summary.json").exists()


def test_the_jobstats_record_is_what_other_tools_read(run: Path, cli: Cli) -> None:
    record = json.loads(cli("stats", "latest", "--jobstats").out)
    assert record == document(cli, "latest")["jobstats"]
    assert (record["gpus"], record["total_time"]) == (4, 3600)
    assert record["nodes"]["n1"] == {
        "cpus": 16,
        "total_time": 4 * 3600,
        "total_memory": 64 << 30,
        "used_memory": 8 << 30,
        "gpu_total_memory": dict.fromkeys("0123", 150_754_820_096),
        "gpu_used_memory": dict.fromkeys("0123", 60 << 30),
        "gpu_utilization": {"0": 95.0, "1": 95.0, "2": 95.0, "3": 0.0},
    }
    assert decode(encode(record)).record == record


def test_what_is_below_a_limit_is_written_so(run: Path, cli: Cli, monkeypatch) -> None:
    """Not `40.0 %, below 40 %`."""
    for used, shown in ((39.96, "39.96"), (39.9, "39.9"), (40 - 2**-40, "39.999999999999")):
        summary = SimpleNamespace(gpu_utilization_percent=used)
        job = SimpleNamespace(job_id="1", summary=summary, per_gpu=(), suspect=())
        monkeypatch.setattr(job_stats, "too_little_read", lambda _job: None)
        with pytest.raises(JobError, match=f" is {shown}[0-9]* %, below 40 %"):
            job_stats.JobStats(job=job).check_utilization(40.0)


def test_the_gate(run: Path, cli: Cli) -> None:
    assert cli("stats", "latest", "--fail-under", "71").status == 0
    answer = cli("stats", "latest", "--fail-under", "72")
    assert answer.status == 1
    assert "GPU utilization is 71.2 %, below 72 %" in answer.err
    make_run(run.parent, "cpu", job_id="local-000001")
    answer = cli("stats", "local-000001", "--fail-under", "1")
    assert answer.status == 1
    assert "is unknown" in answer.err


@pytest.mark.parametrize("read", [True, False])
def test_the_gate_wants_to_know_of_each_gpu_that_was_read(monkeypatch, read: bool) -> None:
    """The mean of the others passes for the job's. Coverage tells of one that was never read."""
    gpus = (
        GpuUse(host="n1", utilization_percent=90.0, covered_percent=100.0),
        GpuUse(host="n1", covered_percent=100.0 if read else 0.0),
    )
    summary = SimpleNamespace(gpu_utilization_percent=90.0)
    job = SimpleNamespace(job_id="1", summary=summary, per_gpu=gpus, suspect=())
    monkeypatch.setattr(job_stats, "too_little_read", lambda _job: None)
    if not read:
        job_stats.JobStats(job=job).check_utilization(40.0)
        return
    with pytest.raises(JobError, match="GPU utilization is unknown of 1 of its 2 GPUs"):
        job_stats.JobStats(job=job).check_utilization(40.0)


def test_the_gate_does_not_trust_a_mean_with_an_impossible_gpu() -> None:
    record = {
        "gpus": 2,
        "total_time": 3600,
        "nodes": {"n1": {"gpu_utilization": {"0": 0, "1": 150}}},
    }
    job = merge(JobUse(job_id="7"), None, [from_record(record)])
    assert job.summary.gpu_utilization_percent == 75
    with pytest.raises(JobError, match="is unknown: JS1 says more than 100 % of a GPU"):
        job_stats.JobStats(job=job).check_utilization(40.0)


def test_one_bad_id_does_not_spoil_the_rest(run: Path, cli: Cli) -> None:
    answer = cli("stats", "nonsense", "latest", "other", "--json")
    assert answer.status == 2
    # The shape follows from what was asked, not from what was found.
    assert [row["job_id"] for row in json.loads(answer.out)["jobs"]] == ["local-abc123"]
    assert answer.err.count("hpckit: error:") == 2
    assert "'nonsense'" in answer.err
    assert "'other'" in answer.err


def test_an_unknown_number_without_slurm(here: Path, cli: Cli) -> None:
    answer = cli("stats", "4242")
    assert answer.status == 3
    assert len(answer.err.splitlines()) == 1
    assert "'4242'" in answer.err


def test_no_id_at_all(here: Path, cli: Cli) -> None:
    answer = cli("stats")
    assert answer.status == 2
    assert "hpckit stats latest" in answer.err


def test_grafana_link(run: Path, here: Path, cli: Cli) -> None:
    answer = cli("stats", "latest", "--grafana")
    assert answer.status == 2
    assert "has no Grafana" in answer.err
    site = here / "templates/sites/mine.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(
        "description: Mine\n"
        "grafana: https://g.example/d/job?var-jobid={jobid}&from={start_ms}&to={end_ms}\n"
    )
    make_run(here / "runs", "linked", job_id="local-777777", site={"name": "mine"})
    answer = cli("stats", "local-777777", "--grafana")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out == (
        "https://g.example/d/job?var-jobid=local-777777&from=1790000000000&to=1790003600000\n"
    )


def test_unknown_is_not_zero(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs")
    write_samples(folder / "samples", [[None] * 361] * 4, limit=None)
    found = document(cli, "latest")
    assert found["summary"]["gpu_utilization_percent"] is None
    assert found["summary"]["gpu_hours_idle"] is None
    assert found["summary"]["energy_joules"] is None
    assert {gpu["utilization_percent"] for gpu in found["per_gpu"]} == {None}
    assert [item for item in found["advice"] if "gpu" in item["id"]] == []
    assert "[" + "?".center(32) + "]" in cli("stats", "latest").out


@pytest.mark.long
def test_red_advice_needs_samples_of_four_fifths_of_the_job(here: Path, cli: Cli) -> None:
    for name, job_id, count in (("most", "local-000001", 290), ("some", "local-000002", 280)):
        folder = make_run(here / "runs", name, job_id=job_id)
        write_samples(folder / "samples", [IDLE[:count]] * 4)
    most, some = document(cli, "local-000001"), document(cli, "local-000002")
    assert most["summary"]["coverage_percent"] == pytest.approx(100 * 2891 / 3600, abs=0.01)
    assert {item["severity"] for item in most["advice"] if item["id"] == "gpu-unused"} == {"red"}
    [weaker] = [item for item in some["advice"] if item["id"] == "gpu-unused"]
    assert weaker["severity"] == "yellow"
    assert weaker["downgraded"] == "only 77 % of its time was read"


def test_a_share_over_100_is_shown_as_suspect_and_silences_nothing(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs")
    write_samples(folder / "samples", [BUSY, BUSY, BUSY, IDLE], cores_used=24.0)
    found = document(cli, "latest")
    assert found["summary"]["cpu_efficiency_percent"] == pytest.approx(150)
    assert found["suspect"] == [
        "summary.cpu_efficiency_percent",
        "per_node.0.cpu_efficiency_percent",
    ]
    assert "gpu-unused" in {item["id"] for item in found["advice"]}
    assert "Over 100 %: summary.cpu_efficiency_percent" in cli("stats", "latest").out


def test_a_damaged_file_is_used_as_far_as_it_goes(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs")
    path = write_samples(folder / "samples", [BUSY], end=False)
    raw = path.read_bytes()
    path.write_bytes(raw[:-30].replace(b"AAAA", b"BBBB", 1) + b"\0" * 100)
    (folder / "samples" / "n2.r0.9.jsonl").write_bytes(b"nothing of ours\n")
    found = document(cli, "latest")
    assert found["summary"]["gpu_utilization_percent"] == pytest.approx(95)
    codes = {note["code"] for note in found["notes"]}
    assert {"sampler_stopped", "headless", "damage"} <= codes


def test_the_samplers_own_notes_are_shown_once(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs")
    notes = [
        Note(mono_us=BEGAN_US, code="disk", text="The samples could not be written for a while: x")
    ]
    for host in ("n1", "n2"):
        write_samples(folder / "samples", [BUSY], host=host, notes=notes)
    out = cli("stats", "latest").out
    assert out.count("could not be written for a while") == 1
    assert "n1, n2: The samples" in out


def test_without_samples_it_says_why(here: Path, cli: Cli) -> None:
    make_run(here / "runs", plan={"sample_interval_s": 0})
    assert "Sampling was off (--sample-interval 0)." in cli("stats", "latest").out


def test_a_wrong_rule_costs_the_advice_and_nothing_else(run: Path, here: Path, cli: Cli) -> None:
    rule = here / "templates/advice/mine.yaml"
    rule.parent.mkdir(parents=True)
    rule.write_text("title: x\n")
    found = document(cli, "latest")
    assert found["advice"] == []
    assert found["summary"]["gpu_hours"] == 4
    assert "mine.yaml" in next(note["text"] for note in found["notes"] if note["code"] == "advice")


def test_explain_names_threshold_and_source(here: Path, cli: Cli) -> None:
    answer = cli("stats", "--explain", "low-gpu-utilization")
    assert answer.status == 0
    assert "red_percent = 15" in answer.out
    assert "jobstats" in answer.out
    answer = cli("stats", "--explain", "low-gpu-utilisation")
    assert answer.status == 2
    assert "low-gpu-utilization" in answer.err


@pytest.mark.parametrize("words", [("--json",), ("--openmetrics",), ("--html", "x.html")])
def test_explain_has_no_other_shape(here: Path, cli: Cli, words: tuple[str, ...]) -> None:
    answer = cli("stats", "--explain", "low-gpu-utilization", *words)
    assert (answer.status, answer.out) == (2, "")
    assert f"leave out {words[0]}" in answer.err
    assert not (here / "x.html").exists()


@pytest.mark.long
def test_an_array_shows_how_its_tasks_are_spread(here: Path, cli: Cli) -> None:
    for task in range(20):
        folder = make_run(
            here / "runs", f"t{task}", job_id=f"local-a_{task}",
            array={"job_id": "local-a", "index": task}, seconds=60 * (task + 1),
        )  # fmt: skip
        write_samples(folder / "samples", [[5.0 * task] * 361])
    found = document(cli, "local-a")
    assert len(found["jobs"]) == 20
    spread = found["distribution"]["gpu_utilization_percent"]
    assert (spread["min"], spread["median"], spread["p95"], spread["max"]) == (0, 47.5, 90, 95)
    assert found["distribution"]["gpu_utilization_histogram"] == [2] * 10

    assert found["distribution"]["states"] == {"COMPLETED": 20}
    out = cli("stats", "local-a").out
    assert max(map(len, out.splitlines())) <= 80
    assert len(out.splitlines()) <= 60
    assert "20 jobs: 20 COMPLETED" in out
    one = document(cli, "local-a_7")
    assert one["summary"]["gpu_utilization_percent"] == pytest.approx(35)


def test_an_array_of_tasks_of_less_than_a_second_has_no_unknown_hours(here: Path, cli: Cli) -> None:
    for task in range(2):
        array = {"job_id": "local-b", "index": task}
        make_run(here / "runs", f"s{task}", job_id=f"local-b_{task}", array=array, seconds=0)
    assert document(cli, "local-b")["distribution"]["gpu_hours"] == 0
    assert "unknown" not in cli("stats", "local-b").out.partition("\n\n")[0]


def test_hostile_names_cannot_move_the_cursor(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", job_id="local-abc123", user="me\x1b[2J\nroot")
    write_samples(folder / "samples", [BUSY], host="n\x1b[31m1")
    out = cli("stats", "latest").out
    assert "\x1b" not in out
    assert "\\x1b[2J\\nroot" in out


class Terminal:
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        ({"TERM": "xterm"}, True),
        ({"NO_COLOR": "1", "TERM": "xterm"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colour_only_where_it_is_wanted(environ: dict[str, str], colour: bool) -> None:
    assert style_of(Terminal(), environ).colour is colour  # type: ignore[arg-type]


def test_blocks_show_means_and_unknown() -> None:
    style = Style()
    assert blocks([0, 100, None, 50], 4, style) == " █·▅"
    assert blocks([0.0, 100.0], 4, style) == "  ██"
    assert blocks([100.0] * 50 + [0.0] * 50, 10, style) == "█████     "
    assert blocks([100.0, None], 2, Style(unicode=False)) == "#?"


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (("--watch", "--json"), "--watch shows pages only"),
        (("--watch", "--fail-under", "40"), "--watch shows pages only"),
        (("--samples", "/nowhere"), "samples /nowhere: there is no such folder"),
        (("--fail-under", "101"), "101"),
        (("--fail-under", "-1"), "-1"),
        (("--grafana",), "Job local-abc123: site 'generic' has no Grafana"),
    ],
)
def test_options_that_cannot_be(run: Path, cli: Cli, argv: tuple[str, ...], what: str) -> None:
    answer = cli("stats", "latest", *argv)
    assert (answer.status, answer.out) == (2, "")
    assert what in answer.err


def test_no_run_yet(here: Path, cli: Cli) -> None:
    answer = cli("stats", "latest")
    assert answer.status == 2
    assert "There is no run yet" in answer.err


def test_a_local_run_that_failed_before_its_ranks_began_has_run(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", state="FAILED", seconds=3)
    for path in (folder / "ranks").iterdir():
        path.unlink()
    said = cli("stats", "latest").out
    assert "ran 3 s" in said
    assert "not started" not in said
    assert "not had a node" not in said
    assert "unknown" not in said


def test_out_of_memory_by_the_samples_is_said_as_status_says_it(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", state="FAILED", seconds=3600)
    write_samples(folder / "samples", [BUSY], memory=63 << 30)
    record = folder / "ranks" / "0.json"
    rank = json.loads(record.read_text())

    def ended(error: str) -> None:
        rank["attempts"][0] |= {"exit_code": 137, "error": error}
        record.write_text(json.dumps(rank))

    ended(f"{OUT_OF_MEMORY_SAMPLED}: 63.0 of 64.0 GiB were in use on this node just before")
    assert "(out of memory)" in cli("status", "latest").out
    found = document(cli, "latest")
    assert (found["state"], found["out_of_memory"]) == ("FAILED", True)
    severities = {item["id"]: item["severity"] for item in found["advice"]}
    assert severities["out-of-memory"] == "red"
    assert "failed" not in severities
    ended("ValueError: x")
    found = document(cli, "latest")
    assert found["out_of_memory"] is False
    assert "failed" in {item["id"] for item in found["advice"]}
