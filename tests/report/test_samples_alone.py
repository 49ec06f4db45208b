"""`hpckit stats` of a job of which only samples are known: Slurm does not tell of it."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import hpckit
from hpckit.owners import user_name
from hpckit.report.known_job import KnownJob, SampledJob
from hpckit.report.monitoring import _names
from hpckit.report.targets import Target
from tests.conftest import Answer, document, write_files
from tests.report.accounting import keep_accounts, row
from tests.report.made import SCHEMA_FILE, START, write_samples
from tests.unit.played_slurm import OFF, answers, down

Cli = Callable[..., Answer]
BUSY, IDLE = [None, *[95.0] * 60], [None, *[0.0] * 60]
OWN = Path("hpckit-samples")


@pytest.fixture
def silent(fake_slurm: Path) -> Path:
    """Give a Slurm that keeps no accounting, whose queue has forgotten the job."""
    answers(fake_slurm, sacct_rc="1", sacct_err=OFF)
    return fake_slurm


def sampled(folder: Path, host: str = "n1", **more: Any) -> Path:
    """Write ten minutes of two GPUs, by default as job 555."""
    return write_samples(folder, [BUSY, IDLE], host=host, **{"ids": {"job_id": "555"}} | more)


def refused(cli: Cli, *words: str) -> str:
    answer = cli("stats", *words)
    assert (answer.status, answer.out) == (2, "")
    return answer.err


def why(found: Mapping[str, Any]) -> str:
    (text,) = [str(note["text"]) for note in found["notes"] if note["code"] == "samples_alone"]
    return text


@pytest.mark.parametrize("words", [(), ("--samples", "elsewhere")])
def test_samples_tell_of_a_job_where_accounting_is_silent(
    silent: Path, here: Path, cli: Cli, words: tuple[str, ...]
) -> None:
    folder = Path("elsewhere") if words else OWN / "555"
    for host in ("n1", "n2"):
        sampled(folder, host)
    found = document(cli, "555", *words)
    jsonschema.validate(found, json.loads(SCHEMA_FILE.read_text()))
    assert (found["state"], found["exit_code"], found["end"]) == ("UNKNOWN", None, None)
    assert (found["nodes"], found["hosts"], found["gpus"]) == (2, ["n1", "n2"], 4)
    assert (found["start"], found["elapsed_s"]) == (START, pytest.approx(600))
    assert (found["user"], found["sources"]) == (user_name(), ["samples"])
    assert found["summary"]["gpu_hours"] == pytest.approx(4 / 6)
    assert [node["cores"] for node in found["per_node"]] == [16, 16]
    assert set(found["requested"].values()) == {None}
    assert "accounting does not answer: 'sacct' " in why(found)
    assert "accounting storage is disabled" in why(found)
    assert found["run_id"] is found["name"] is None


def test_samples_tell_of_a_job_that_slurm_has_forgotten(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    keep_accounts(here.parent / "bin", [row("77")])
    sampled(OWN / "555")
    assert why(document(cli, "555")).endswith("Slurm does not have this job (any more).")


def test_a_silent_queue_may_have_the_job(fake_slurm: Path, here: Path, cli: Cli) -> None:
    keep_accounts(here.parent / "bin", [row("77")])
    (here.parent / "bin" / "squeue").unlink()
    down(fake_slurm)
    sampled(OWN / "555")
    text = why(document(cli, "555"))
    assert "accounting does not have this job, and the queue does not answer: " in text
    assert "Unable to contact slurm controller" in text


def test_samples_tell_of_a_job_where_there_is_no_slurm(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(here.parent / "bin"))
    sampled(Path("copied"))
    assert why(document(cli, "555", "--samples", "copied")).endswith("this machine has no Slurm.")


@pytest.mark.parametrize("ids", [{"job_id": "local-77"}, {}])
@pytest.mark.parametrize("words", [(), ("--samples", str(OWN / "local-77"))])
def test_samples_of_a_command_outside_slurm(
    here: Path, cli: Cli, ids: dict[str, str], words: tuple[str, ...]
) -> None:
    """Those of earlier versions name no job: they are what their folder is called."""
    sampled(OWN / "local-77", ids={"restart": "0", **ids})
    found = document(cli, "local-77", *words)
    assert (found["job_id"], found["state"], found["gpus"]) == ("local-77", "UNKNOWN", 2)
    assert "Slurm was not asked, for 'local-77' is not an id of its jobs." in why(found)


@pytest.mark.parametrize(
    ("ids", "whose"),
    [
        ({"job_id": "777"}, "777"),
        ({"job_id": "local-77"}, "local-77"),
        ({"job_id": "780", "array_job_id": "777", "array_task_id": "3"}, "777_3"),
        ({"job_id": "778", "het_job_id": "777", "het_offset": "1"}, "777"),
        ({}, "given"),
    ],
)
def test_samples_of_another_job_are_refused(
    silent: Path, here: Path, cli: Cli, ids: dict[str, str], whose: str
) -> None:
    sampled(Path("given"), ids=ids)
    text = refused(cli, "555", "--samples", "given")
    assert f"The samples in given are not of job '555', but of {whose}. " in text
    line = f"stats {whose} --samples given"
    assert text.endswith(f"Give that id: hpckit {line}\n")
    assert cli(*line.split()).status == 0


def test_samples_of_another_job_in_a_jobs_own_folder_are_refused(
    silent: Path, here: Path, cli: Cli
) -> None:
    sampled(OWN / "555", ids={"job_id": "777"})
    assert f"The samples in {here / OWN / '555'} are not of job '555', but of 777. " in refused(
        cli, "555"
    )


def test_files_of_other_jobs_in_a_shared_folder_are_left_out(
    silent: Path, here: Path, cli: Cli
) -> None:
    sampled(Path("all"))
    sampled(Path("all"), "n2", ids={"job_id": "777"})
    found = document(cli, "555", "--samples", "all")
    assert found["hosts"] == ["n1"]
    assert [n["text"] for n in found["notes"] if n["code"] == "unmatched"] == [
        "1 file of other jobs' samples left out: of job 777."
    ]


def test_what_others_wrote_into_samples_is_not_passed_to_a_terminal_or_a_shell(
    silent: Path, here: Path, cli: Cli
) -> None:
    sampled(Path("given"), ids={"job_id": "7\x1b[31m\n; reboot"})
    text = refused(cli, "555", "--samples", "given")
    assert text.count("\n") == 1
    assert "\x1b" not in text
    assert r"hpckit stats '7\x1b[31m\n; reboot' --samples given" in text
    ids = {"job_id": "9", "array_job_id": "555", "array_task_id": "1\x1b[31m\n/../x"}
    sampled(Path("given"), ids=ids)
    assert "are not of job '555'" in refused(cli, "555", "--samples", "given")


def test_an_arrays_id_means_each_task_that_has_samples(silent: Path, here: Path, cli: Cli) -> None:
    """Its last task has the array's own number, too."""
    for task, number in (("1", "701"), ("2", "700")):
        ids = {"job_id": number, "array_job_id": "700", "array_task_id": task}
        sampled(Path("all"), ids=ids, pid=int(task))
    found = document(cli, "700", "--samples", "all")
    assert [job["job_id"] for job in found["jobs"]] == ["700_1", "700_2"]
    assert document(cli, "700_2", "--samples", "all")["job_id"] == "700_2"
    assert document(cli, "701", "--samples", "all")["job_id"] == "701"
    with pytest.raises(hpckit.RequestError, match=r"700 is an array of 2 tasks. .* 700_1$"):
        hpckit.stats(700, samples="all")


@pytest.mark.long
def test_tasks_of_an_array_are_found_in_the_folders_of_their_own_numbers(
    silent: Path, here: Path, cli: Cli
) -> None:
    """As `hpckit sample` calls them in an array that plain sbatch started."""
    for task, number in (("2", "700"), ("1", "701"), ("10", "1001")):
        ids = {"job_id": number, "array_job_id": "700", "array_task_id": task}
        sampled(OWN / number, f"n{task}", ids=ids)
    sampled(OWN / "702", ids={"job_id": "702"})
    sampled(OWN / "703", ids={"job_id": "703", "array_job_id": "702", "array_task_id": "1"})
    found = document(cli, "700")
    assert [job["job_id"] for job in found["jobs"]] == ["700_1", "700_2", "700_10"]
    assert [job["hosts"] for job in found["jobs"]] == [["n1"], ["n2"], ["n10"]]
    assert document(cli, "700_10")["hosts"] == ["n10"]
    assert document(cli, "701")["job_id"] == "701"
    assert document(cli, "702")["job_id"] == "702"
    assert document(cli, "702_1")["job_id"] == "702_1"
    missing = cli("stats", "700_3")
    assert (missing.status, missing.out) == (3, "")


def test_one_step_of_a_job(silent: Path, here: Path, cli: Cli) -> None:
    for step, host in (("0", "n1"), ("1", "n2")):
        sampled(OWN / "555", host, ids={"job_id": "555", "step_id": step})
    assert document(cli, "555.1")["hosts"] == ["n2"]
    text = refused(cli, "555.7")
    assert "are not of step '7' of job 555; they are of 0, 1." in text
    sampled(OWN / "556", ids={"job_id": "556"})
    assert "are not of step '0' of job 556; they name no step." in refused(cli, "556.0")


def test_attempts_are_those_of_the_files(silent: Path, here: Path, cli: Cli) -> None:
    sampled(OWN / "555")
    sampled(OWN / "555", "n2", restart=1, late_s=3600, end=False)
    found = document(cli, "555")
    assert [one["hosts"] for one in found["attempts"]] == [["n1"], ["n2"]]
    assert [one["end"] for one in found["attempts"]] == [START + 600, None]
    assert (found["nodes"], found["gpus"], found["elapsed_s"]) == (1, 2, pytest.approx(1200))


def test_a_sampler_without_an_end_may_still_run(silent: Path, here: Path, cli: Cli) -> None:
    sampled(OWN / "555", end=False)
    sampled(OWN / "555", "n2")
    notes = {note["code"]: note for note in document(cli, "555")["notes"]}
    assert "sampler_stopped" not in notes
    assert notes["sampler_open"]["host"] == "n1"
    assert "it still runs, or was killed" in notes["sampler_open"]["text"]


def test_a_sampler_that_has_only_begun(silent: Path, here: Path, cli: Cli) -> None:
    path = sampled(OWN / "555")
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n")
    answer = cli("stats", "555")
    assert "ran for an unknown time" in answer.out
    assert "The files of this job's samples have no samples yet." in answer.out
    assert document(cli, "555")["start"] == START


def test_damaged_files_are_used_as_far_as_they_can_be_read(
    silent: Path, here: Path, cli: Cli
) -> None:
    path = sampled(OWN / "555")
    content = bytearray(path.read_bytes())
    content[3000:3500] = bytes(500)
    path.write_bytes(content[:-20])
    write_files(here, {"hpckit-samples/555/n2.r0.9.jsonl": "nothing of ours\n"})
    found = document(cli, "555")
    assert {"damage", "headless"} <= {note["code"] for note in found["notes"]}
    assert found["hosts"] == ["n1"]
    path.unlink()
    text = "cannot be used: n2.r0.9.jsonl has no readable header. Copy them again"
    assert text in refused(cli, "555")
    os.mkfifo(here / "hpckit-samples/555/n3.r0.9.jsonl")
    assert "n3.r0.9.jsonl: it is not a regular file" in refused(cli, "555")


def test_a_folder_without_samples_is_refused(here: Path, cli: Cli) -> None:
    todo = "`hpckit sample` writes them to hpckit-samples/JOBID where it runs, or to its --dir."
    (here / "empty").mkdir()
    text = refused(cli, "555", "--samples", "empty")
    assert f"samples empty: this folder has no samples files. {todo}" in text
    text = refused(cli, "555", "--samples", "nowhere")
    assert f"samples nowhere: there is no such folder. {todo}" in text
    for job in ("555", "556"):
        sampled(OWN / job, ids={"job_id": job})
    text = refused(cli, "555", "--samples", "hpckit-samples")
    assert text.endswith("give one: hpckit-samples/555, hpckit-samples/556.\n")


@pytest.mark.parametrize("folder", ["given", str(OWN / "555")])
def test_a_folder_that_may_not_be_read(
    silent: Path, here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    sampled(Path(folder))
    real = Path.iterdir

    def iterdir(path: Path) -> Any:  # root may read everything
        if path.name == Path(folder).name:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    words = ("--samples", folder) if folder == "given" else ()
    assert "it cannot be read: Permission denied" in refused(cli, "555", *words)


def test_without_samples_an_unknown_job_is_what_it_was(silent: Path, here: Path, cli: Cli) -> None:
    (here / OWN / "555").mkdir(parents=True)
    answer = cli("stats", "555")
    assert (answer.status, answer.out) == (3, "")
    assert "There is no run of job '555' here or in your index, and accounting" in answer.err
    assert "There is no run 'local-77' in" in refused(cli, "local-77")
    assert "There is no run '../555' in" in refused(cli, "../555")


@pytest.mark.long
def test_every_shape_of_it(silent: Path, here: Path, cli: Cli) -> None:
    pytest.importorskip("matplotlib")
    sampled(OWN / "555")
    page = cli("stats", "555").out
    assert page.startswith(f"Job 555  UNKNOWN\n  {user_name()}\n  1 node, 2 GPUs (NVIDIA H200)")
    assert "- Only this job's samples are known, so its state is unknown" in page
    assert "(gpu-unused)" in page
    assert "FAILED" not in page
    assert 'state="UNKNOWN"' in cli("stats", "555", "--openmetrics").out
    record = json.loads(cli("stats", "555", "--jobstats").out)
    assert (record["gpus"], record["total_time"], list(record["nodes"])) == (2, 600, ["n1"])
    assert cli("stats", "555", "--html", "job.html", "--png", "job.png").status == 0
    assert "samples are known" in (here / "job.html").read_text()
    assert (here / "job.png").stat().st_size > 0
    assert cli("stats", "555", "--fail-under", "40").status == 0
    assert cli("stats", "555", "--watch").status == 0
    found = hpckit.stats("555", samples=OWN / "555")
    assert (found.job.state, found.run, len(found.per_gpu)) == ("UNKNOWN", None, 2)
    assert sorted(path.name for path in (OWN / "555").iterdir()) == ["n1.r0.7.jsonl"]


def test_one_wrong_id_does_not_hide_the_others(silent: Path, here: Path, cli: Cli) -> None:
    sampled(OWN / "555")
    answer = cli("stats", "555", "556", "--samples", str(OWN / "555"))
    assert answer.status == 2
    assert "Job 555  UNKNOWN" in answer.out
    assert "are not of job '556', but of 555" in answer.err


def test_the_sites_monitoring_is_not_asked(here: Path) -> None:
    """It may be of another cluster, where the id is another job's."""
    known = KnownJob(sampled=SampledJob(folder=here, start=START))
    assert _names(Target(job_id="555", known=known)) == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")
def test_the_user_is_who_owns_all_of_the_files(silent: Path, here: Path, cli: Cli) -> None:
    theirs = sampled(OWN / "555")
    os.chown(theirs, 61002, 61002)
    assert document(cli, "555")["user"] == "61002"
    sampled(OWN / "555", "n2")
    assert document(cli, "555")["user"] is None
