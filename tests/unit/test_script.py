import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpckit.errors import TemplateError
from hpckit.job import Job
from hpckit.job.header import header
from hpckit.job.place import RunPlace
from hpckit.job.resolve import resolve
from hpckit.job.script import VARIABLES, launch_argv, make_context, make_script, one_line
from hpckit.job_spec.spec import JobSpec
from hpckit.render.quoting import ShellCode
from hpckit.schedulers.base import Machine
from hpckit.sites import Site
from hpckit.submission.model import Submission, in_parts
from tests.unit.made import BUILTIN, collection

PLACE = RunPlace(run_id="r1", dir=Path("/runs/50%/r1"), cwd="/home/a b")
SITE = Site(name="box", defaults={"partition": "gpu", "account": "acc", "qos": "high"})


def job(site: Site = SITE, machine: Machine | None = None, **asked: Any) -> Job:
    spec = JobSpec(**{"target": "ddp", "program": __file__, **asked})
    return resolve(spec, site, None, python="/py", machine=machine)


def options(made: Job, place: RunPlace = PLACE) -> dict[str, str | None]:
    return {str(row["name"]): row["value"] for row in header(made, place)}


def test_the_header_says_what_was_asked_and_nothing_else() -> None:
    assert options(job(nodes=2, gpus=4, time_min=90)) == {
        "job-name": "test_script",
        "partition": "gpu",
        "account": "acc",
        "qos": "high",
        "nodes": "2",
        "ntasks-per-node": "4",
        "gpus-per-node": "4",
        "time": "01:30:00",
        "chdir": "/home/a b",
        "output": "/runs/50%%/r1/job.out",
        "open-mode": "append",
        "no-requeue": None,
    }


GRES = replace(SITE, gpu_request="gres")


@pytest.mark.parametrize(
    ("site", "asked", "wanted"),
    [
        (SITE, {"gpus": 2, "gpu_type": "A100"}, {"gpus-per-node": "A100:2", "gres": ""}),
        (GRES, {"gpus": 2}, {"gres": "gpu:2", "gpus-per-node": ""}),
        (GRES, {"gpus": 2, "gpu_type": "A100"}, {"gres": "gpu:A100:2"}),
        (SITE, {"gpus": 0}, {"gres": "", "gpus-per-node": ""}),
        (SITE, {"array": ("x=1,2,3",)}, {"array": "0-2", "output": "/runs/50%%/r1_%a/job.out"}),
        (SITE, {"array": ("x=1,2",), "parallel": 4}, {"array": "0-1%4"}),
        (SITE, {"mem_gb": 8, "cpus_per_task": 3}, {"mem": "8G", "cpus-per-task": "3"}),
        (SITE, {"constraint": "a&b", "exclude": "n[1-2]"}, {"constraint": "a&b"}),
        (SITE, {"max_requeues": 1}, {"signal": "USR2@90", "requeue": None, "no-requeue": ""}),
        (SITE, {"target": "mpi", "launcher": "mpirun", "max_requeues": 1}, {"signal": "B:USR2@90"}),
        (SITE, {"target": "mpi", "launcher": "srun", "max_requeues": 1}, {"signal": "USR2@90"}),
        (SITE, {"launcher": "torchrun", "gpus": 4}, {"ntasks-per-node": "4"}),
        (SITE, {"partition": "a,b", "account": "other"}, {"partition": "a,b", "account": "other"}),
    ],
)
def test_each_wish_has_its_option(site: Site, asked: dict, wanted: dict) -> None:
    found = options(job(site, **asked))
    assert {key: found.get(key, "") for key in wanted} == wanted


def test_dependencies_come_from_the_place() -> None:
    place = replace(PLACE, after=("afterok:12", "afterany:13"))
    assert options(job(), place)["dependency"] == "afterok:12,afterany:13"


def test_the_local_script_has_no_header() -> None:
    assert make_context(job(machine=Machine()), PLACE)["header"] == []


def test_templates_vars_lists_exactly_what_there_is() -> None:
    assert set(VARIABLES) == set(make_context(job(), PLACE))


def test_a_chain_has_a_script_for_each_of_its_jobs() -> None:
    one = job(chain=2, gpus=2)
    found = options(one)
    assert (found["signal"], "no-requeue" in found, "requeue" in found) == ("USR2@90", True, False)
    for link, folder in enumerate(("submitit", "submitit/1", "submitit/2")):
        place = replace(PLACE, link=link)
        argv = launch_argv(one, place)
        start = argv.index("hpckit.submission.follow_up")
        assert argv[start + 1 : start + 6] == ("chain", "/runs/50%/r1", str(link), "--", "srun")
        assert argv[-1] == f"/runs/50%/r1/{folder}"
        assert make_context(one, place)["exec"] is True
    argv = launch_argv(replace(one, checkpoint="*.pt"), PLACE)
    start = argv.index("hpckit.submission.follow_up")
    assert argv[start + 3 : start + 6] == ("0", "--checkpoint=*.pt", "--")


def test_supervisors_are_started_by_the_plans_launcher() -> None:
    argv = launch_argv(job(nodes=2, gpus=2), PLACE)
    assert argv[:3] == ("srun", "--nodes=2", "--ntasks=4")
    assert argv[-2:] == ("hpckit.submission.in_job", "/runs/50%/r1/submitit")
    argv = launch_argv(job(machine=Machine(), nodes=2, gpus=2), PLACE)
    assert argv[argv.index("hpckit.payload.spawn") :][:4] == (
        "hpckit.payload.spawn",
        "2",
        "2",
        "--",
    )


@pytest.mark.parametrize("text", ["a b", "two\nlines", "\x1b[31m", "it's", "\u2028", "é", "\0"])
def test_a_command_stays_on_one_line_and_readable(text: str) -> None:
    line = one_line(["python", text])
    assert isinstance(line, ShellCode)
    assert line.isprintable()
    if text.isprintable():
        assert shlex.split(line) == ["python", text]


def test_the_script_says_what_made_it() -> None:
    made = make_script(job(nodes=2, gpus=4), PLACE, (BUILTIN,))
    lines = made.text.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert lines[1].endswith("strategy ddp, run r1")
    assert "2 nodes x 4 ranks, 8 GPUs in all, site box, launcher srun" in lines[2]
    assert [row.name for row in made.templates] == [
        "slurm/base.sh.j2",
        "modules/none.sh.j2",
        "environments/none.sh.j2",
    ]
    assert all(f"template {row.name} of built-in, sha256:" in made.text for row in made.templates)


def test_preview_and_submission_are_one_text() -> None:
    first, second = (make_script(job(gpus=4), PLACE, (BUILTIN,)).text for _ in range(2))
    assert first == second


@pytest.mark.parametrize("source", ["", "echo {{ nodes }}\n", "\n#!/bin/bash\n"])
def test_a_script_needs_its_first_line(tmp_path: Path, source: str) -> None:
    lab = collection(tmp_path, "lab", {"templates/slurm/base.sh.j2": source})
    with pytest.raises(TemplateError, match=r"base.sh.j2 gives a script whose first line is"):
        make_script(job(), PLACE, (lab, BUILTIN))


@pytest.mark.parametrize(
    ("most", "arrays", "logs"),
    [
        (1001, ["0-999%3", "0-999%3", "0-499%3"], ["%a", "1%3a", "2%3a"]),
        (2499, ["0-999%3", "0-999%3", "0-499%3"], ["%a", "1%3a", "2%3a"]),
        (2500, ["0-2499%3"], ["%a"]),
        (None, ["0-2499%3"], ["%a"]),
    ],
)
def test_more_tasks_than_an_array_takes_are_several_with_logs_in_each_tasks_folder(
    monkeypatch: pytest.MonkeyPatch, most: int | None, arrays: list[str], logs: list[str]
) -> None:
    made = job(array=("seed=" + ",".join(map(str, range(2500))),), parallel=3)
    monkeypatch.setattr(type(made.scheduler), "most_tasks", lambda _: most)
    parts = in_parts(
        Submission(spec=JobSpec(target="ddp"), job=made, place=PLACE, collections=BUILTIN)
    )
    assert [options(made, part.place)["array"] for part in parts] == arrays
    assert [options(made, part.place)["output"] for part in parts] == [
        f"/runs/50%%/r1_{log}/job.out" for log in logs
    ]
    folders = [launch_argv(made, part.place)[-1] for part in parts]
    assert folders[0].endswith("/r1/submitit")
    assert folders[1:] == [f"{folders[0]}/{1000 * n}" for n in range(1, len(parts))]


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ({"chain": 2}, [True, False, False]),
        ({"array": ("seed=1,2,3",), "parallel": 1}, [True]),
        # In several arrays, each of which waits for those before it; else each is for itself.
        (
            {"array": (f"seed={','.join(map(str, range(2500)))}",), "parallel": 3},
            [True, False, False],
        ),
        ({"array": (f"seed={','.join(map(str, range(2500)))}",)}, [True, True, True]),
    ],
)
def test_of_jobs_that_wait_for_one_another_the_first_alone_is_held(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], held: list[bool]
) -> None:
    """Whoever releases it cannot know that each of the others would wait for the same."""
    made = job(sbatch=("nice=3", "hold"), **asked)
    monkeypatch.setattr(type(made.scheduler), "most_tasks", lambda _: 1001)
    whole = Submission(spec=JobSpec(target="ddp"), job=made, place=PLACE, collections=(BUILTIN,))
    rows = [options(part.job, part.place) for part in in_parts(whole)]
    assert ["hold" in row for row in rows] == held
    assert [row["nice"] for row in rows] == ["3"] * len(held)
    texts = [part.rendered.text for part in in_parts(whole)]
    assert ["#SBATCH --hold\n" in text for text in texts] == held
