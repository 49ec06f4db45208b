"""From login to first job: init, sites, doctor and submit on a real Slurm."""

import json
import re
from pathlib import Path

import pytest

from tests import slurmbox
from tests.conftest import add_program
from tests.slurm.conftest import Desk, desk_in
from tests.slurmbox.fixture import Slurm

MODULES = Path(slurmbox.__file__).parent / "modules"
LEVELS = re.compile(r"^(ok  |bad |\?   ) \S")


@pytest.fixture(scope="module")
def new_user(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory):
    """Give a user who has just logged in for the first time and run `hpckit init`."""
    with desk_in(tmp_path_factory.mktemp("init"), slurm) as desk:
        said = desk.call("init")
        assert said.out.endswith("box.yaml: written\n")
        yield desk


def site_file(desk: Desk) -> Path:
    return desk.home / ".config" / "hpckit" / "templates" / "sites" / "box.yaml"


def test_sites_accept_what_init_wrote(new_user: Desk) -> None:
    shown = new_user.call("sites", "show", "box", "--json").json
    assert (shown["partition"], shown["mpi"], shown["gpu_types"]) == ("gpu", "pmix", {"h200": 4})
    assert (shown["gpu_request"], shown["gpus_per_node"]) == ("gpus-per-node", 4)
    short = shown["partitions"]["short"]
    assert (short["max_time_min"], short["cpus_per_node"], short["mem_gb_per_node"]) == (30, 8, 19)
    rows = new_user.call("sites", "list", "--json").json
    (row,) = [row for row in rows if row["name"] == "box"]
    assert row["path"] == str(site_file(new_user))


def test_submit_uses_it(new_user: Desk) -> None:
    script = new_user.work / "hello.py"
    script.write_text("print('hello')\n")
    new_user.done("serial", script, "--gpus", "1", "--site", "box", "--time", "5")
    # ... and its limits: 31 minutes are over what init found of `short`.
    refused = new_user.call(
        "submit", "serial", script, "--site", "box", "-p", "short", "-t", "31", expect=2
    )
    assert "00:30:00" in refused.err


def test_run_again_it_changes_nothing(new_user: Desk) -> None:
    before = (site_file(new_user).read_bytes(), site_file(new_user).stat().st_mtime_ns)
    assert new_user.call("init").out.endswith("nothing to change\n")
    assert (site_file(new_user).read_bytes(), site_file(new_user).stat().st_mtime_ns) == before


def test_detect_knows_what_slurm_says(new_user: Desk, slurm: Slurm) -> None:
    record = new_user.call("sites", "detect", "--json").json
    assert (record["name"], record["accounting"], record["unknown"]) == ("box", True, [])
    assert record["slurm_version"] in slurm.run("sinfo", "--version").stdout
    assert [row["name"] for row in record["partitions"]] == ["gpu", "short", "urgent"]
    assert record["default_account"] in record["accounts"]
    assert "pmix" in record["mpi"]["kinds"]


def test_nothing_was_submitted_by_asking(new_user: Desk, slurm: Slurm) -> None:
    def jobs() -> set[str]:
        return set(slurm.run("squeue", "-h", "-t", "all", "-o", "%i").stdout.split())

    before = jobs()
    new_user.call("init")
    new_user.call("sites", "detect")
    new_user.call("doctor")
    assert jobs() <= before  # Slurm forgets some meanwhile


def test_doctor_finds_a_good_cluster_good(new_user: Desk) -> None:
    said = new_user.call("doctor", "--site", "box").out
    assert all(LEVELS.match(line) for line in said.splitlines())
    assert not re.search(r"^bad", said, re.MULTILINE)
    assert re.search(r"^ok   sbatch answers \(Slurm \S+, cluster box\)$", said, re.MULTILINE)
    assert "ok   accounting answers (sacct)\n" in said
    assert "ok   this machine's clock and the controller's agree\n" in said
    assert "ok   site box agrees with the cluster\n" in said
    assert re.search(
        r"^ok   Slurm would accept this job and start it .* on c[12]", said, re.MULTILINE
    )


def test_doctor_says_what_is_wrong_with_a_site(new_user: Desk) -> None:
    folder = new_user.work / "templates" / "sites"
    folder.mkdir(parents=True)
    (folder / "wrong.yaml").write_text(
        "description: x\ndefaults: {partition: gone, account: nobody}\nlaunch: {mpi: pmix_v1}\n"
        "modules: lmod\n"
        "environments:\n  torch: {kind: modules, load: [hpckit-no-such/1.0]}\n"
        f"  demo: {{kind: modules, load: [hpckit-demo/1.0], use: [{MODULES}]}}\n"
    )
    try:
        record = new_user.call("doctor", "--site", "wrong", "--json", expect=1).json
    finally:
        (folder / "wrong.yaml").unlink()
    bad = {row["what"]: row["todo"] for row in record["checks"] if row["level"] == "bad"}
    assert "gpu, short, urgent" in bad["partition 'gone' of the site does not exist"]
    assert "account 'nobody' is not yours" in bad
    assert "the site's MPI 'pmix_v1' is not one that srun knows" in bad
    assert "environment 'torch': there is no module hpckit-no-such/1.0" in bad
    assert "a small job" in bad  # Slurm refuses the account
    fine = [row["what"] for row in record["checks"] if row["level"] == "ok"]
    known = "environment 'demo': its modules exist (hpckit-demo/1.0); in "
    assert any(what.startswith(known) for what in fine)


def test_doctor_mpi_tries_every_launcher(new_user: Desk) -> None:
    asked = ("doctor", "mpi", "--site", "box", "--json")
    said = new_user.call(*asked, expect=None).out
    # Open MPI 4 may die in MPI_Init: see `slurmbox.config.MPI_CONF`.
    if crashed := "End of error message" in said:
        said = new_user.call(*asked).out
    record = json.loads(said)
    rows = {row["what"].partition(":")[0]: row for row in record["checks"]}
    # Debian's Open MPI speaks PMIx, and not PMI2.
    assert rows["srun --mpi=pmix"]["level"] == "ok"
    assert "2 ranks on c1, c2, Open MPI" in rows["srun --mpi=pmix"]["what"]
    assert rows["srun --mpi=pmix"]["what"].endswith("<- hpckit submit uses this")
    assert rows["mpirun"]["level"] == "ok"
    assert rows["srun --mpi=pmi2"]["level"] == "bad"
    # There Open MPI 4 ends in MPI_Init; each rank of Open MPI 5 goes on alone.
    ends = re.search(r"Open MPI v?4\.", rows["srun --mpi=pmix"]["what"])
    why = "was not built for this kind" if ends else "each sees only 1: they did not connect"
    # A cause that another launcher has, too, is told with that one.
    said = rows["srun --mpi=pmi2"]["todo"]
    other = re.match(r"the same as with (.*?) \(", said)
    assert why in (rows[other[1]]["todo"] if other else said)
    assert record["good"] is True
    # What went well leaves no run behind; what did not, its logs.
    names = {path.name.rpartition("-2")[0] for path in new_user.runs.glob("[!.]*")}
    assert crashed or not names & {"doctor-pmix", "doctor-mpirun"}
    assert any(name.startswith("doctor-pmi2") for name in names)


def test_without_slurm_doctor_mpi_tries_this_machine(new_user: Desk) -> None:
    programs = new_user.home / "bin"
    programs.mkdir()
    said = "sbatch: fatal: Could not establish a configuration source"
    add_program(programs / "sbatch", f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    path = f"{programs}:{new_user.env['PATH']}"
    said = new_user.call("doctor", "mpi", env={"PATH": path}).out
    assert re.fullmatch(r"ok   mpirun: 2 ranks on \S+, Open MPI \S+ <- hpckit submit .*\n", said)


def test_doctor_gpu_says_that_a_node_has_no_driver(new_user: Desk) -> None:
    words = ("doctor", "gpu", "--gpus", "2", "--nodes", "2", "--site", "box")
    lines = new_user.call(*words, expect=1).out.splitlines()
    told = [f"bad  c{node} GPU {index}: no GPU driver: " for node in (1, 2) for index in (0, 1)]
    assert [line[: len(told[0])] for line in lines] == told
    assert list(new_user.runs.glob("doctor-gpu-*"))  # its logs say more
