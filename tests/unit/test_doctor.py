"""`hpckit doctor`: each finding says good, bad with what to do, or that it cannot be known."""

import errno
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hpckit.detect.answers import Reply
from hpckit.detect.login_node import questions
from hpckit.doctor import Check, Level, all_good
from hpckit.doctor.environments import environment_checks
from hpckit.doctor.installation import (
    folder_checks,
    ledger_checks,
    namesake_checks,
    requirement_fault,
)
from hpckit.doctor.site import more_questions, scheduler_checks, site_checks
from hpckit.environments import Environment, EnvironmentKind
from hpckit.sites import PartitionLimits
from tests.conftest import add_program, write_files
from tests.unit.detected import Cluster, a_site, answers, cluster, sections, site

NOW = 1770000000.0


def bad(checks: list[Check]) -> list[str]:
    return [row.what for row in checks if row.level is Level.BAD]


def asked(version: str, **changed: Reply) -> dict[str, Reply]:
    more = {
        "sbatch": Reply(asked="sbatch --version", text=f"slurm {version}.1\n"),
        "queue": Reply(asked="squeue", text="12\n13_4\n"),
    }
    return answers(version) | more | changed


def scheduler(version: str, now: float = NOW, **changed: Reply) -> list[Check]:
    return list(scheduler_checks(asked(version, **changed), cluster(version), now))


def test_a_cluster_that_answers_is_good() -> None:
    lines = [str(row) for row in scheduler("25.05")]
    assert lines == [
        "ok   sbatch answers (Slurm 25.05.3, cluster newest)",
        "ok   squeue answers: 2 jobs of yours",
        "ok   accounting answers (sacct)",
        "ok   this machine's clock and the controller's agree",
    ]


def test_one_job_is_not_jobs() -> None:
    lines = [str(row) for row in scheduler("25.05", queue=Reply(asked="squeue", text="12\n"))]
    assert "ok   squeue answers: 1 job of yours" in lines


def test_programs_that_do_not_answer_are_bad_and_say_why() -> None:
    silent = Reply(asked="x", why="'x' gave no answer within 10 s and was stopped.")
    found = scheduler("25.05", sbatch=silent, queue=silent, accounting=silent)
    assert bad(found) == [
        "sbatch does not answer",
        "squeue does not answer",
        "accounting does not answer (sacct)",
    ]
    assert all("no answer within 10 s" in row.todo for row in found[:3])


def test_a_cluster_without_accounting_is_not_ill() -> None:
    found = scheduler("20.11")
    assert bad(found) == []
    assert (
        "?    cannot be checked here: what jobs used, after their end: this cluster keeps no "
        in ("\n".join(map(str, found)))
    )


@pytest.mark.parametrize(("seconds", "word"), [(90, "90 s ahead of"), (-3600, "3600 s behind")])
def test_clocks_that_differ_are_found(seconds: int, word: str) -> None:
    (found,) = bad(scheduler("25.05", NOW + seconds))
    assert word in found


def test_a_site_that_init_wrote_says_what_the_cluster_says(tmp_path: Path) -> None:
    for version in ("20.11", "21.08", "23.11", "25.05"):
        found = list(site_checks(site(version, tmp_path), "/s.yaml", cluster(version)))
        assert bad(found) == []
        assert "agrees with the cluster" in found[-1].what


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"partition": "old"}, "partition 'old' of the site does not exist"),
        (
            {"partitions": {"old": PartitionLimits(name="old")}},
            "partition 'old' of the site does not exist",
        ),
        (
            {"partitions": {"gpu": PartitionLimits(name="gpu", max_nodes=9)}},
            "partition 'gpu': the site allows 9 nodes, but the cluster allows 8",
        ),
        ({"gpu_types": {"v100": 4}}, "GPU types v100 of the site do not exist"),
        (
            {"gpu_types": {"a100": 99}},
            "the site has 99 GPUs of type a100 on a node, but the cluster's nodes have 4 at most",
        ),
        (
            {"gpus_per_node": 99},
            "the site has 99 GPUs on a node, but the cluster's nodes have 8 at most",
        ),
        (
            {"partitions": {"gpu": PartitionLimits(name="gpu", gpus_per_node=99)}},
            "partition 'gpu': the site has 99 GPUs on a node, but the cluster's nodes have 8 at "
            "most",
        ),
        (
            {"partitions": {"gpu": PartitionLimits(name="gpu", cpus_per_node=9999)}},
            "partition 'gpu': the site has 9999 CPUs on a node, but the cluster's nodes have 64 at "
            "most",
        ),
        (
            {"partitions": {"gpu": PartitionLimits(name="gpu", mem_gb_per_node=9999)}},
            "partition 'gpu': the site has 9999 GiB of memory on a node, but the cluster's nodes "
            "have 502 at most",
        ),
        ({"account": "elsewhere"}, "account 'elsewhere' is not yours"),
        ({"qos": "express"}, "QOS 'express' is not yours"),
        ({"mpi": "pmix_v9"}, "the site's MPI 'pmix_v9' is not one that srun knows"),
    ],
)
def test_what_the_cluster_no_longer_has_is_bad(changed: dict[str, Any], what: str) -> None:
    found = list(site_checks(a_site(**changed), "/s.yaml", cluster("21.08")))
    assert bad(found) == [what]
    assert all(row.todo for row in found if row.level is Level.BAD)


def test_a_site_that_needs_an_account_is_bad_without_one() -> None:
    payer = a_site(account_required=True)
    assert bad(list(site_checks(payer, "/s.yaml", cluster("21.08")))) == []  # Slurm's default
    none = list(site_checks(payer, "/s.yaml", cluster("21.08", default_account="")))
    assert bad(none) == ["jobs here need an account"]


def test_limits_over_the_clusters_are_bad() -> None:
    longer = a_site(partitions={"debug": PartitionLimits(name="debug", max_time_min=60)})
    (what,) = bad(list(site_checks(longer, "/s.yaml", cluster("24.05"))))
    assert what == "partition 'debug': the site allows 01:00:00, but the cluster allows 00:30:00"
    down = a_site(partition="long")
    (what,) = bad(list(site_checks(down, "/s.yaml", cluster("20.11"))))
    assert what == "default partition 'long' is DOWN"


def test_without_an_answer_a_site_is_neither_right_nor_wrong() -> None:
    mine = a_site(account="lab", gpu_types={"a100": 4}, partition="old")
    found = cluster("25.05", partitions="?", nodes="?")
    levels = [row.level for row in site_checks(mine, "/s.yaml", found)]
    assert Level.UNKNOWN in levels
    assert all_good(site_checks(a_site(account="x"), "/s.yaml", cluster("20.11")))


# Lmod's own start file, which bash reads last, must not put its function in the place of ours.
MODULE = """\
unset BASH_ENV
module() {
    case $1 in
    -t) [[ $3 != PyTorch* ]] || printf '/apps:\\nPyTorch/2.4\\nPyTorch/2.6(default)\\n' >&2;;
    use) [[ -d $2 ]];;
    esac
}
"""


def env(**changed: Any) -> Environment:
    return Environment(**{"name": "e", "kind": EnvironmentKind.MODULES, **changed})


def environments(row: Environment, modules: str = "lmod") -> list[Check]:
    return list(environment_checks(a_site(modules=modules, environments={"e": row}), 20))


def test_modules_are_looked_for_by_the_shells_own_function(here: Path) -> None:
    (here.parent / "home" / ".bash_profile").write_text(MODULE)
    (fine,) = environments(env(load=("PyTorch/2.6", "PyTorch")))
    assert str(fine) == "ok   environment 'e': its modules exist (PyTorch/2.6, PyTorch)"
    (gone,) = environments(env(load=("PyTorch/2.5", "PyTorch/2.4")))
    assert gone.what == "environment 'e': there is no module PyTorch/2.5"
    assert "module spider PyTorch/2.5" in gone.todo
    (odd,) = environments(env(load=(f"x; touch {here}/made; $(touch {here}/made)",)))
    assert odd.level is Level.BAD
    assert not (here / "made").exists()


LMOD = Path("/usr/share/lmod/lmod/init/bash")
RUN_BY_LMOD = {
    ".modulerc": "#%Module\nexec touch {mark}\n",
    ".modulerc.lua": 'os.execute("touch {mark}")\n',
    "torch/.modulerc": "#%Module\nexec touch {mark}\n",
    "torch/.modulerc.lua": 'os.execute("touch {mark}")\n',
    "torch/.version": "#%Module\nexec touch {mark}\n",
    "torch/1.0.lua": 'os.execute("touch {mark}")\n',
    "torch/2.0": "#%Module\nexec touch {mark}\n",
}


@pytest.mark.skipif(not LMOD.exists(), reason="lmod is not installed")
def test_a_groups_module_files_are_not_run_here(here: Path) -> None:
    """Real Lmod runs `.modulerc` and kin of each folder of `module use` when it lists modules."""
    mark, planted = here / "ran", here / "modules"
    write_files(planted, {name: text.format(mark=mark) for name, text in RUN_BY_LMOD.items()})
    for path in (planted, *planted.rglob("*")):  # Lmod looks at these bits, whoever it is
        path.chmod(0o755 if path.is_dir() else 0o644)
    (here.parent / "home" / ".bash_profile").write_text(f"unset BASH_ENV; . {LMOD}\n")
    ours = env(load=("torch", "torch/1.0", "torch/2.0"), use=(str(planted),))
    (found,) = environments(ours)
    assert (found.level, mark.exists()) == (Level.GOOD, False)
    assert found.what.endswith(f"; in {planted} only file names were checked")
    (found,) = environments(env(load=("torch/latest",), use=(str(planted),)))
    assert (found.level, mark.exists()) == (Level.UNKNOWN, False)
    assert (
        f"{planted}/.modulerc may define this module; it is a program, so only a job may run it"
        in found.todo
    )
    listed = f"module use {planted}; module -t avail"
    subprocess.run(["bash", "-lc", listed], check=False, capture_output=True)
    assert mark.exists()  # whoever is not careful runs it


def test_modules_of_a_groups_folder_are_found_by_their_files_names(here: Path) -> None:
    (here.parent / "home" / ".bash_profile").write_text(MODULE)
    write_files(
        here, {"modules/torch/2.0": "", "modules/gcc.lua": "", "modules/empty/.version": ""}
    )
    use = (str(here / "modules"), str(here / "nowhere"))
    (found,) = environments(env(load=("torch", "torch/2.0", "gcc", "PyTorch"), use=use))
    assert found.level is Level.GOOD
    for name in ("torch/3.0", "empty", "../modules/torch", "torch\0"):
        (found,) = environments(env(load=(name,), use=use))
        assert found.level is not Level.GOOD


def test_without_a_module_function_modules_cannot_be_known(here: Path) -> None:
    (here.parent / "home" / ".bash_profile").write_text("unset BASH_ENV; type() { return 1; }\n")
    (found,) = environments(env(load=("PyTorch/2.6",)))
    assert found.level is Level.UNKNOWN
    (wrong,) = environments(env(load=("PyTorch/2.6",)), modules="none")
    assert "set modules: lmod or tmod" in wrong.todo


def test_environments_that_are_not_there_are_bad(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    venv = env(kind=EnvironmentKind.VENV, path=str(tmp_path))
    assert bad(environments(venv)) == [f"environment 'e': {tmp_path}/bin/python does not exist"]
    (tmp_path / "bin" / "python").touch()
    assert bad(environments(venv)) == []
    conda = env(kind=EnvironmentKind.CONDA, path="torch", conda_init=f"{tmp_path}/conda.sh")
    assert bad(environments(conda)) == [f"environment 'e': {tmp_path}/conda.sh does not exist"]
    image = env(kind=EnvironmentKind.APPTAINER, path=f"{tmp_path}/torch.sif")
    assert bad(environments(image)) == [f"environment 'e': {tmp_path}/torch.sif does not exist"]


@pytest.mark.parametrize(
    ("python", "torch", "said"),
    [
        ("3.12", "2.13.0+cpu", " (Python 3.12, torch 2.13.0+cpu)"),
        ("3.12", "", " (Python 3.12)"),
        ("3.10", "2.0.1", " (Python 3.10, torch 2.0.1; hpckit.parallel needs torch 2.1)"),
        ("3.9", "1.13.1", " (Python 3.9, torch 1.13.1; hpckit.parallel needs Python 3.10 and torch "
         "2.1)"),
        ("", "", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [EnvironmentKind.VENV, EnvironmentKind.CONDA])
def test_an_environments_versions_are_read_from_its_files(
    tmp_path: Path, kind: EnvironmentKind, python: str, torch: str, said: str
) -> None:
    files = {"bin/python": ""}
    if python:
        files[f"lib/python{python}/site-packages/a.py"] = ""
    if torch:
        text = f"__all__ = []\n__version__ = '{torch}'\ndebug = False\n"
        files[f"lib/python{python}/site-packages/torch/version.py"] = text
    write_files(tmp_path, files)
    (found,) = environments(env(kind=kind, path=str(tmp_path)))
    assert str(found) == f"ok   environment 'e': {tmp_path}/bin/python exists{said}"


def folders(root: Path) -> list[Check]:
    return list(folder_checks(root, root.parent / "state", on_cluster=True))


def test_a_ledger_is_there_and_its_own_groups(tmp_path: Path, monkeypatch) -> None:
    """Root may write everywhere, so the answer is played."""
    (tmp_path / "fine").mkdir()
    (tmp_path / "closed").mkdir()
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: "closed" not in str(path) and may(path, mode)
    )
    found = list(ledger_checks(tmp_path / name for name in ("fine", "closed", "gone")))
    assert [row.level for row in found] == [Level.GOOD, Level.BAD, Level.BAD]
    assert bad(found) == [
        f"ledger {tmp_path}/closed cannot be read and written by you",
        f"ledger {tmp_path}/gone is not there",
    ]
    assert "docs/report.md" in found[2].todo


def test_doctor_asks_the_ledgers_of_the_site_and_of_collections(here: Path, cli) -> None:
    write_files(
        here,
        {
            "hpckit.yaml": "name: lab\nledger: /nowhere/of-the-lab\n",
            "templates/sites/box.yaml": f"description: x\nledger: {here}\n",
        },
    )
    said = cli("doctor", "--site", "box").out
    assert f"ok   ledger {here} can be read and written" in said
    assert "bad  ledger /nowhere/of-the-lab is not there" in said


def test_a_runs_folder_that_is_not_there_yet_is_fine(tmp_path: Path) -> None:
    found = folders(tmp_path / "a" / "b")
    assert bad(found) == []
    assert list(tmp_path.iterdir()) == []


def test_a_runs_folder_that_everybody_can_write_is_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (found,) = bad(folders(tmp_path / "runs"))
    assert found == f"everybody can write to {tmp_path}"
    tmp_path.chmod(0o1777)
    assert bad(folders(tmp_path / "runs")) == []


def test_a_runs_folder_that_cannot_be_written_is_bad(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = folders(tmp_path / "file" / "runs")
    assert bad(found) == [
        f"runs folder {tmp_path}/file/runs cannot be written: Not a directory",
        f"{tmp_path}/file/state cannot be written: Not a directory",
    ]


def test_a_full_file_system_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = list(os.statvfs(tmp_path))
    values[4] = 1  # f_bavail
    values[7] = 3  # f_favail
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))
    space, files = bad(folders(tmp_path))
    assert space == f"{tmp_path} has 0.0 GiB left"
    assert files == f"{tmp_path} has room for only 3 more files"


def test_a_full_disk_is_bad_though_it_takes_empty_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", full)
    assert bad(folders(tmp_path / "runs")) == [
        f"runs folder {tmp_path}/runs cannot be written: Disk quota exceeded",
        f"{tmp_path}/state cannot be written: Disk quota exceeded",
    ]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("requirement", "installed", "fault"),
    [
        ("typer<0.29,>=0.26", "0.28.1", ""),
        ("typer<0.29,>=0.26", "0.29.0", "typer is 0.29.0, needs <0.29,>=0.26"),
        ("submitit>=1.5.2", "1.5.2.post1", ""),
        ("submitit>=1.5.2", "1.4", "submitit is 1.4, needs >=1.5.2"),
        ("pyyaml", None, "pyyaml is not installed"),
    ],
)
def test_packages_must_fit_what_hpckit_asks(
    requirement: str, installed: str | None, fault: str
) -> None:
    assert requirement_fault(requirement, lambda name: installed) == fault


def test_the_project_of_the_same_name_is_found_beside() -> None:
    assert list(namesake_checks(None)) == []
    [found] = namesake_checks("0.2.1")
    assert found.level is Level.BAD
    assert "the package hpckit 0.2.1 is installed" in found.what
    assert found.todo.endswith("-m pip uninstall hpckit, then install hpckit-slurm again")


@pytest.fixture
def newest(here: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("hpckit.owners.user_name", lambda: "root")
    monkeypatch.setattr("_socket.gethostbyaddr", lambda _: ("login2.example.org", [], []))
    made = Cluster(here.parent / "bin", "25.05")
    text = '#!/bin/sh\n[ "$1" = --version ] && { echo slurm 25.05.3; exit; }\n'
    text += "echo 'sbatch: Job 5 to start at 2030-01-01T00:00:00 using 1 processors on h1' >&2\n"
    add_program(here.parent / "bin" / "sbatch", text)
    add_program(here.parent / "bin" / "squeue", "#!/bin/sh\n")
    assert set(more_questions("root")) & set(questions("root")) == set()
    now = sections("25.05")["config"].replace(f"{NOW:.0f}", f"{time.time():.0f}")
    made.says("25.05", config=now)
    return made


def test_after_init_doctor_finds_nothing_bad(newest: Cluster, cli) -> None:
    assert cli("init").status == 0
    done = cli("doctor")
    assert [line for line in done.out.splitlines() if line.startswith("bad")] == []
    assert "ok   sbatch answers (Slurm 25.05.3, cluster newest)\n" in done.out
    assert "ok   site newest agrees with the cluster\n" in done.out
    assert "ok   Slurm would accept this job and start it " in done.out
    assert done.status == 0


def test_before_init_it_says_to_run_it(newest: Cluster, cli) -> None:
    done = cli("doctor")
    assert done.status == 0
    assert (
        "limits and GPUs of this cluster: no site file fits this cluster: run hpckit init\n"
        in done.out
    )


def test_what_sbatch_refuses_is_bad(newest: Cluster, here: Path, cli) -> None:
    cli("init")
    text = '#!/bin/sh\n[ "$1" = --version ] && { echo slurm 25.05.3; exit; }\n'
    text += "echo 'sbatch: error: Invalid account' >&2; exit 1\n"
    add_program(here.parent / "bin" / "sbatch", text)
    done = cli("doctor", "--json")
    record = json.loads(done.out)
    assert (done.status, record["good"]) == (1, False)
    (wrong,) = [row for row in record["checks"] if row["level"] == "bad"]
    assert wrong["what"] == "a small job"
    assert "Invalid account" in wrong["todo"]


def test_a_broken_site_file_is_a_finding_with_its_line(newest: Cluster, here: Path, cli) -> None:
    cli("init")
    path = here.parent / "home" / ".config" / "hpckit" / "templates" / "sites" / "newest.yaml"
    path.write_text("description: x\npartitons: {}\n")
    done = cli("doctor", "--site", "newest")
    assert done.status == 1
    assert f"bad  the site's file: {path}:2: unknown key 'partitons'" in done.out


def test_without_slurm_nothing_is_bad(here: Path, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sinfo", "scontrol", "srun", "sacctmgr", "sacct", "squeue"):
        add_program(here.parent / "bin" / name, "#!/bin/sh\nexit 1\n")
    done = cli("doctor")
    assert (done.status, "\nbad" in done.out) == (0, False)
    assert "?    cannot be checked here: Slurm: " in done.out
    assert "gives a valid job script\n" in done.out


def test_collections_that_changed_or_cannot_be_read_are_findings(here: Path, cli) -> None:
    folder = here.parent / "lab"
    page = folder / "templates" / "sites" / "lab.yaml"
    page.parent.mkdir(parents=True)
    page.write_text("description: a lab's\n")
    text = "name: lab\ndescription: x\ncontact: a@b.c\nurl: https://x.y\n"
    (folder / "hpckit.yaml").write_text(text)
    assert cli("collections", "add", str(folder)).status == 0
    assert "\nbad" not in cli("doctor").out
    page.write_text("description: another's\n")
    done = cli("doctor")
    assert done.status == 1
    assert "bad  collection 'lab': " in done.out
    assert "templates/sites/lab.yaml" in done.out
    page.unlink()
    (here / "hpckit.lock").write_text("nonsense: [")
    assert "bad  collection 'hpckit.lock' is left out: " in cli("doctor").out


def test_an_sbatch_that_finds_no_cluster_is_not_said_to_be_missing(
    here: Path, cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "bin").mkdir()
    text = "Could not establish a configuration source"
    program = f"#!/bin/sh\necho 'sbatch: fatal: {text}' >&2; exit 1\n"
    add_program(here / "bin" / "sbatch", program)
    monkeypatch.setenv("PATH", f"{here / 'bin'}:{os.environ['PATH']}")
    done = cli("doctor")
    assert text in done.out
    assert "whether Slurm would accept a job: no Slurm answers here; jobs run on this" in done.out
    assert "no sbatch" not in done.out
