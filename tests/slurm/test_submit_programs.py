"""Any program: shell and Perl scripts, compiled MPI, modules, words that a module provides.

Each is one array of three tasks on two nodes: the last rank ends well, with status 3, by SIGSEGV.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import LONG_S
from tests.slurm.conftest import (
    SCRIPTS,
    Desk,
    Record,
    add_site,
    died_in_mpi_init,
    is_open_mpi_5,
)

pytestmark = pytest.mark.slurm
HOWS = ("0", "3", "segv")
SHAPE = ("--nodes", "2", "--gpus", "0", "--sample-interval", "1")
# A program of a few lines would be done before the sampler has begun.
SAMPLED = 'until ls "$HPCKIT_RUN_DIR/samples/$(uname -n)".*; do sleep 0.1; done >/dev/null 2>&1'
# The one that fails waits for the other's words: it would be ended before it has any.
BOTH = 'until [ -e "$HPCKIT_RUN_DIR/began-0" ]; do sleep 0.1; done'
BASH = f"""\
#!/bin/bash
{SAMPLED}
"""
BASH += """\
echo "rank $RANK of $WORLD_SIZE, how $2"
: > "$HPCKIT_RUN_DIR/began-$RANK"
if [ "$2" != 0 ] && [ "$RANK" = 1 ]; then
    BOTH
    echo "no luck on rank $RANK" >&2
    if [ "$2" = segv ]; then kill -SEGV $$; fi
    exit "$2"
fi
if [ "$2" != 0 ]; then exec sleep 600; fi
""".replace("BOTH", BOTH)
PERL = f"""\
system('{SAMPLED}');
"""
PERL += """\
$| = 1;
my ($rank, $how) = ($ENV{RANK}, $ARGV[1]);
print "rank $rank of $ENV{WORLD_SIZE}, how $how\\n";
open(my $began, ">", "$ENV{HPCKIT_RUN_DIR}/began-$rank");
if ($how ne "0" and $rank == 1) {
    system('BOTH');
    print STDERR "no luck on rank $rank\\n";
    kill "SEGV", $$ if $how eq "segv";
    exit $how;
}
sleep 600 if $how ne "0";
""".replace("BOTH", BOTH)
MODULE = f"""\
import os, signal, sys, time
from . import HERE
os.system('{SAMPLED}')
"""
MODULE += """\
rank, how = os.environ["RANK"], sys.argv[2]
print(f"rank {rank} of {os.environ['WORLD_SIZE']}, how {how}", flush=True)
open(f"{os.environ['HPCKIT_RUN_DIR']}/began-{rank}", "w").close()
if how != "0" and rank == "1":
    os.system('BOTH')
    print(f"no luck on rank {rank}", file=sys.stderr, flush=True)
    if how == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    sys.exit(int(how))
if how != "0":
    time.sleep(600)
""".replace("BOTH", BOTH)


def compiled(folder: Path) -> str:
    """Build the MPI program in a folder whose name has a space; return how it is called."""
    if not shutil.which("mpicc"):
        pytest.skip("no mpicc: no compiled MPI program is tried")
    (folder / "my code").mkdir()
    argv = ["mpicc", "-o", folder / "my code" / "a.out", SCRIPTS / "work.c"]
    subprocess.run(argv, check=True, capture_output=True, timeout=LONG_S)
    return "my code/a.out"


def three_ways(desk: Desk, *argv: str) -> None:
    """Submit an array of the three ends, and check what is said of each."""
    for how, job in zip(HOWS, submitted(desk, argv, *HOWS), strict=True):
        status = desk.over(job["job_id"])
        if "mpi" in argv and died_in_mpi_init(job["run_dir"]):
            (job,) = submitted(desk, argv, how)
            status = desk.over(job["job_id"])
        good = how == "0"
        code = {"0": 0, "3": 3, "segv": 139}[how]
        killed = "srun" in argv and not good and is_killed_by_others(desk, status)
        assert status["state"] == ("COMPLETED" if good else "FAILED")
        assert status["exit_code"] == code or killed
        folder = Path(job["run_dir"])
        for rank in (0, 1):
            said = (folder / "logs" / f"{rank}.out").read_text()
            assert said == f"rank {rank} of 2, how {how}\n"
        assert [row["host"] for row in status["ranks"]] == ["c1", "c2"]
        hosts = {path.name.partition(".")[0] for path in (folder / "samples").iterdir()}
        assert hosts == {"c1", "c2"}
        if not good:
            named(desk.call("logs", job["job_id"], "--errors").out, how, killed=killed)


def submitted(desk: Desk, argv: tuple[str, ...], *hows: str) -> list[Record]:
    """Submit an array of some ends; return its jobs."""
    jobs: list[Record] = desk.submit(*argv, *SHAPE, "--array", f"how={','.join(hows)}")["jobs"]
    return jobs


def is_killed_by_others(desk: Desk, status: Record) -> bool:
    """Say whether Open MPI 5 had Slurm kill the failed rank's supervisor before that knew more.

    The other rank sees the connection close, and aborts, before anybody can know of the exit.
    """
    return status["ranks"][1]["exit_code"] is None and is_open_mpi_5(desk)


def named(report: str, how: str, *, killed: bool) -> None:
    """Check that a report names rank, host and end, and has the last words."""
    if killed:
        assert report.startswith("rank 1 (c2) recorded no end: killed from outside")
        return
    word = "3" if how == "3" else "139 (SIGSEGV)"
    assert report.startswith(f"rank 1 on c2 failed first, exit status {word}, ")
    assert ("rank 1 on c2: killed by SIGSEGV" in report) == (how == "segv")
    assert "no luck on rank 1" in report


def test_a_shell_script(desk: Desk) -> None:
    (desk.work / "run.sh").write_text(BASH)  # nobody has said chmod +x
    three_ways(desk, "ddp", "run.sh", "--tasks-per-node", "1")


def test_a_perl_script(desk: Desk) -> None:
    script = desk.work / "count"
    script.write_text(f"#!/usr/bin/env perl\n{PERL}")
    script.chmod(0o755)
    three_ways(desk, "ddp", "./count", "--tasks-per-node", "1")


def test_a_module(desk: Desk) -> None:
    (desk.work / "pkg").mkdir()
    (desk.work / "pkg" / "__init__.py").write_text("HERE = 1\n")
    (desk.work / "pkg" / "train.py").write_text(MODULE)
    three_ways(desk, "ddp", "-m", "pkg.train", "--tasks-per-node", "1")


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_a_compiled_mpi_program(desk: Desk, launcher: str) -> None:
    add_site(desk, "launch: {mpi: pmix}\n")
    words = ("--tasks-per-node", "1", "--site", "box", "--launcher", launcher)
    three_ways(desk, "mpi", compiled(desk.work), *words)


def test_a_rank_that_mpi_ends_is_named_with_its_own_words(desk: Desk) -> None:
    """PMIx has the step killed, often before the rank's end is recorded.

    Under srun, Open MPI 5 writes no words of its own.
    """
    add_site(desk, "launch: {mpi: pmix}\n")
    words = ("mpi", compiled(desk.work), "--tasks-per-node", "1", "--site", "box")
    abort, fatal = (row["job_id"] for row in submitted(desk, words, "abort", "fatal"))
    silent = is_open_mpi_5(desk)  # then the ranks' ends may be lost, too
    for job_id, text in (
        (abort, "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD with errorcode 5."),
        (fatal, "MPI_ERR_RANK: invalid rank (MPI_ERRORS_ARE_FATAL)"),
    ):
        desk.over(job_id)
        report = desk.call("logs", job_id, "--errors").out
        if silent:
            assert "no luck on rank 1\n" in report
            continue
        assert report.startswith("rank 1 on c2 failed first"), report
        assert f"{text}\nbefore that, the end of its stderr:\nno luck on rank 1\n" in report
        assert "killed from outside" not in report
    if not silent:
        assert desk.status(abort)["exit_code"] == 5
        assert "  rank 1   c2, exit status 5: MPI_ABORT was " in desk.call("status", abort).out


def test_words_are_looked_up_where_the_job_runs(desk: Desk) -> None:
    """One task on each node for launchers of others; a module gives the program, or nobody does."""
    tools = desk.work / "tools"
    tools.mkdir()
    line = 'echo "$NODE_RANK $RANK/$WORLD_SIZE $MASTER_ADDR $HPCKIT_RESTART: $*"'
    (tools / "launchit").write_text(f"#!/bin/sh\n{line}\n")
    (tools / "launchit").chmod(0o755)
    add_site(desk, "")
    each = ("--nodes", "2", "--tasks-per-node", "1", "--gpus", "0", "--site", "box")
    missing = desk.submit("serial", "launchit", *each)
    add_site(desk, f'setup:\n  - export PATH={tools}:"$PATH"\n')
    found = desk.submit("serial", "launchit", *each, "--", "launch", "it's $HOME")
    status = desk.over(found["job_id"])
    assert status["state"] == "COMPLETED", desk.call("logs", found["job_id"], "--all").out
    logs = [Path(found["run_dir"], "logs", f"{rank}.out").read_text() for rank in (0, 1)]
    assert logs == [f"{rank} {rank}/2 c1 0: launch it's $HOME\n" for rank in (0, 1)]
    assert desk.over(missing["job_id"])["exit_code"] == 127
    report = desk.call("logs", missing["job_id"], "--errors").out
    assert "failed first, exit status 127 (a program did not start)" in report
    assert "hpckit: Program 'launchit' was not found on c" in report
    assert "PATH is /" in report
