"""`hpckit shell` where there is no terminal, or where its words do not fit together."""

import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpckit.api.jupyter import find_notebook
from hpckit.api.terminals import attach, find_shell
from hpckit.errors import JobError, NotFoundError, OutsideError, RequestError
from hpckit.job_spec.sbatch_words import _PASSED, OWN
from hpckit.run_folders.index import add_to_index
from hpckit.session.attach import terminal_as_it_is
from hpckit.slurm.states import JobState, is_finished
from tests.conftest import Answer
from tests.patience import LONG_S
from tests.unit.made import make_run

Cli = Callable[..., Answer]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "hpckit shell needs a terminal"),
        (["latest"], "hpckit shell needs a terminal"),
        (["7", "--gpus", "1"], "--gpus is for a new shell, and hpckit shell 7 goes to one"),
        (["7", "--idle", "30m"], "--idle is for a new shell"),
        (["7", "--detach"], "--detach is for a new shell"),
        (["--json"], "--json is for --detach"),
        (["--idle", "soon"], "--idle 'soon' is not a duration"),
        (["--idle", "30m", "--sample-interval", "0"], "--sample-interval 0 switches the sampler"),
        (["--array", "a=1,2"], "hpckit shell has no option --array"),
    ],
)
def test_what_does_not_fit_is_refused(
    words: list[str], expected: str, here: Path, cli: Cli
) -> None:
    more = [] if words and words[0] in ("7", "latest") else ["--executor", "local"]
    answer = cli("shell", *words, *more)
    assert answer.status == 2
    assert expected in answer.err
    assert not (here / "runs").exists()


@pytest.mark.long
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", ["shell", "jupyter", "scale", "submit", "resubmit"])
def test_no_command_is_told_to_use_an_option_that_it_has_not(cli: Cli, kind: str) -> None:
    known = set(re.findall(r"--[a-z][a-z-]*", cli(kind, "--help").out))
    for word in (*OWN, *_PASSED):
        if f"--{word}" not in known:
            told = cli(kind, f"--{word}").err
            said = told.partition(f"has no option --{word}.")[2].partition(" See `")[0]
            assert said or f"See `hpckit {kind} --help`" in told, told
            named = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", said)) - {"--set", f"--{word}"}
            assert named <= known, told
    assert "Use --" not in cli("shell", "--nodes", "2").err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", ["shell", "jupyter"])
def test_what_was_only_submitted_says_how_to_go_there(
    cli: Cli, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(*_words: object, **_options: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(job_id="4242")]

    import hpckit.cli.jupyter  # it takes the name when it is imported

    monkeypatch.setattr("hpckit.cli.carry_out.carry_out", sent)
    monkeypatch.setattr(hpckit.cli.jupyter, "carry_out", sent)
    more = ("--skip-check", "program", "--executor", "local", "--gpus", "0")
    said = cli(kind, "--detach", *more)
    assert f"hpckit {kind} 4242\n" in said.err


@pytest.mark.usefixtures("here")
def test_a_dry_run_shows_the_script(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")
    shown = cli("shell", "--dry-run", "--gpus", "1").out
    assert "#SBATCH --job-name=shell" in shown
    assert "#SBATCH --gpus-per-node=1" in shown
    assert "-m hpckit.session.host shell -- bash" in shown


def test_latest_is_the_newest_shell_of_ones_own(here: Path) -> None:
    with pytest.raises(NotFoundError, match="You have no shell here"):
        find_shell("latest", here)
    session: dict[str, Any] = {"session": {"kind": "shell", "idle_s": None}}
    make_run(here, "shell-1", job_id="21", **session)
    make_run(here, "shell-2", job_id="22", submitted_at=200.0, **session)
    make_run(here, "ddp-9", job_id="23", submitted_at=300.0)
    notebook = {"session": {"kind": "jupyter", "idle_s": 60.0}}
    make_run(here, "jupyter-1", job_id="24", submitted_at=400.0, **notebook)
    assert find_shell("latest", here).job_id == "22"
    assert find_shell("21", here).job_id == "21"
    assert find_notebook("latest", here).job_id == "24"
    for kind in ("shell", "jupyter"):  # elsewhere, and in the index
        session = {"session": {"kind": kind, "idle_s": None}}
        away = make_run(here / "away", kind, job_id=f"3{len(kind)}", submitted_at=500.0, **session)
        add_to_index([away])
    assert find_shell("latest", here).job_id == "22"
    assert find_notebook("latest", here).job_id == "24"
    assert find_shell("latest", None).job_id == "35"
    assert find_notebook("latest").job_id == "37"
    with pytest.raises(RequestError, match="Job 23 is not a session"):
        find_shell("23", here)
    with pytest.raises(RequestError, match="Job 24 is a session of kind jupyter"):
        find_shell("24", here)


def test_a_record_that_says_strange_things_of_its_session_is_damaged(here: Path) -> None:
    run = make_run(here, "shell-1", job_id="21", session={"kind": ["x"], "idle_s": None})
    assert json.loads((run.dir / "run.json").read_text())["session"]["kind"] == ["x"]
    with pytest.raises(RequestError, match="damaged"):
        find_shell(str(run.dir), here)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "words",
    [
        ("submit", "ddp"),
        ("shell",),
        ("jupyter", "--skip-check", "program"),
        ("scale", "ddp", "--gpus", "1,2"),
    ],
)
def test_a_dry_run_without_slurm_says_whose_script_it_prints(
    cli: Cli, words: tuple[str, ...]
) -> None:
    said = cli(*words, "--dry-run")
    assert said.status == 0
    assert "#SBATCH" in said.out
    assert "No Slurm answers here, so without --dry-run" in said.err
    assert "No Slurm answers" not in cli(*words, "--dry-run", "--executor", "slurm").err


def told(state: JobState) -> Any:
    """Give a run of a shell on a node, of which Slurm says this once srun has ended."""
    over = is_finished(state)
    status = SimpleNamespace(state=state, finished=over, good=state is JobState.COMPLETED)
    place = SimpleNamespace(scheduler=SimpleNamespace(one_machine=False))
    return SimpleNamespace(_folder=place, dir="/runs/a", job_id="7", status=lambda: status)


@pytest.mark.parametrize("state", [JobState.NODE_FAIL, JobState.CANCELLED, JobState.FAILED])
def test_a_shell_whose_job_was_ended_is_no_success_whatever_srun_says(
    state: JobState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's srun ends with 0 where its node is lost: seen with 22.05.8."""
    monkeypatch.setattr("hpckit.api.terminals._in_terminal", lambda _argv: 0)
    here: Any = SimpleNamespace(nodes=["c1"])
    with pytest.raises(JobError, match=f"Job 7 was ended: it is {state}"):
        attach(told(state), here)
    attach(told(JobState.RUNNING), here)  # its user has left
    attach(told(JobState.COMPLETED), here)

    run = told(JobState.RUNNING)
    said = iter([run.status(), told(JobState.FAILED).status()])
    run.status = lambda: next(said)  # a moment after its session
    monkeypatch.setattr("hpckit.api.terminals._in_terminal", lambda _argv: 1)
    with pytest.raises(JobError, match="Job 7 was ended: it is FAILED"):
        attach(run, here)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_what_has_the_terminal_ends_with_hpckit(signum: int) -> None:
    """Ctrl-C while srun connects, or a kill of hpckit: else srun reads the next shell's keys."""
    # Python loses a Ctrl-C that comes in what it calls after `fork`: until then it does not sleep.
    waits = 'until grep -q "^State:.S" /proc/$PPID/status; do :; done'
    code = (
        "from hpckit.api.terminals import _in_terminal\n"
        f"_in_terminal(('sh', '-c', 'trap \"\" INT; {waits}; echo up $$; exec sleep 600'))\n"
    )
    master, slave = os.openpty()
    child = subprocess.Popen([sys.executable, "-c", code], stdin=slave, stdout=subprocess.PIPE)
    assert child.stdout
    inner = int(child.stdout.readline().split()[1])
    try:
        child.send_signal(signum)
        child.wait(LONG_S)
        until = time.monotonic() + LONG_S
        while is_there(inner) and time.monotonic() < until:
            time.sleep(0.02)  # the kernel tells it
        assert not is_there(inner)
    finally:
        child.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(inner, signal.SIGKILL)
        child.communicate()
        os.close(master)
        os.close(slave)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("again", [False, True])
def test_who_interrupts_a_new_shell_hears_of_its_job(
    cli: Cli, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits, Ctrl-C cancels; after that the job goes on, and holds its node."""
    import hpckit.cli.shell as command

    def interrupt(*_words: object) -> None:
        raise KeyboardInterrupt

    run = SimpleNamespace(job_id="4242", cancel=interrupt)
    monkeypatch.setattr("hpckit.api.submit.send", lambda *_words, **_options: [run])
    monkeypatch.setattr(command, "has_terminal", lambda: True)
    runs = SimpleNamespace(finished=False, never_starts=False)
    waits = interrupt if again else lambda *_words: runs
    monkeypatch.setattr(command, "until_it_runs", waits)
    monkeypatch.setattr(command, "attach", interrupt)
    said = cli("shell", "--executor", "local")
    assert said.status == 130
    if again:
        assert "whether job 4242 is cancelled is unknown. See: hpckit status 4242" in said.err
    else:
        assert "goes on. Come back: hpckit shell 4242\nEnd it: hpckit cancel 4242" in said.err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("then", ["until_it_runs", "attach"])
@pytest.mark.parametrize(
    ("error", "status"), [(OSError(errno.EIO, "Input/output error"), 3), (OutsideError("No."), 3)]
)
def test_a_shell_that_an_error_leaves_is_not_left_unsaid(
    cli: Cli, then: str, error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hpckit.cli.shell as command

    def fail(*_words: object) -> None:
        raise error

    runs = SimpleNamespace(finished=False, never_starts=False)
    run = SimpleNamespace(job_id="4242")
    monkeypatch.setattr("hpckit.api.submit.send", lambda *_words, **_options: [run])
    monkeypatch.setattr(command, "has_terminal", lambda: True)
    monkeypatch.setattr(command, "until_it_runs", lambda *_words: runs)
    monkeypatch.setattr(command, then, fail)
    said = cli("shell", "--executor", "local")
    assert said.status == status
    assert "may go on. Come back: hpckit shell 4242\nEnd it: hpckit cancel 4242\n" in said.err
    assert "Traceback" not in said.err


def test_a_terminal_that_is_gone_is_told_of_in_a_line() -> None:
    with Path(os.devnull).open() as gone, pytest.raises(OutsideError, match="This terminal cannot"):
        terminal_as_it_is(gone.fileno())
