"""Local runs leave nothing behind, however they end and whoever kills what of them."""

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpckit.submission import waiting
from tests.integration.test_local import control, hpckit, nothing_runs, state, submit, until

pytestmark = pytest.mark.long

# What a rank may leave: a daemon of a double fork in a session of its own, and a child that is in
# the rank's own group; both are deaf to SIGTERM. The rank itself ends as it is told.
LEAVES = """\
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(os.environ["HPCKIT_RUN_DIR"])
deaf = "trap '' TERM HUP INT; touch {}/{}; while :; do sleep 100; done"
daemon = deaf.format(folder, "daemon")
subprocess.run(["bash", "-c", 'setsid bash -c "$1" & exit 0', "-", daemon], check=True)
subprocess.Popen(["bash", "-c", deaf.format(folder, "child")])
while not ((folder / "daemon").exists() and (folder / "child").exists()):
    time.sleep(0.02)
(folder / "ready").touch()
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1] in ("deaf", "sleep"):
    time.sleep(600)
sys.exit(int(sys.argv[1]))
"""


def leave(how: str, *words: str) -> tuple[dict[str, Any], Path]:
    """Submit the script above; return the run and its folder when it is as far as it gets."""
    run = submit(LEAVES, *words, args=[how])
    folder = Path(run["run_dir"])
    until(lambda: (folder / "ready").exists())
    return run, folder


@pytest.mark.parametrize("status", [0, 3])
def test_what_a_script_leaves_running_ends_with_the_run(here: Path, status: int) -> None:
    run, _ = leave(str(status), "--wait")
    assert run["exit_code"] == status
    nothing_runs(here)


def test_a_cancel_ends_what_is_deaf_to_it(here: Path) -> None:
    run, folder = leave("deaf")
    hpckit("cancel", run["job_id"])
    until(lambda: state(run["job_id"])["state"] == "CANCELLED")
    nothing_runs(here)
    attempt = json.loads((folder / "ranks" / "0.json").read_text())["attempts"][0]
    assert (attempt["exit_code"], attempt["consequence"]) == (137, True)  # its end is on record


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ("hpckit.schedulers.local.controller", "NODE_FAIL"),
        ("hpckit.payload.keeper", "FAILED"),
        ("hpckit.payload.spawn", "FAILED"),
        ("hpckit.submission.in_job", "FAILED"),
    ],
)
def test_nothing_survives_the_death_of_any_part(here: Path, part: str, word: str) -> None:
    run, _ = leave("sleep")
    os.kill(pid_of(here, part), signal.SIGKILL)
    nothing_runs(here)
    assert state(run["job_id"])["state"] == word


def pid_of(folder: Path, part: str) -> int:
    """Return the number of hpckit's own process of a run that runs this module."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            cwd = (entry / "cwd").readlink()
        except OSError:
            continue
        if cwd == folder and b"-m" in words and words[words.index(b"-m") + 1] == part.encode():
            return int(entry.name)
    raise AssertionError(f"no {part} runs")


STORM = """\
for n in $(seq 50); do
    setsid bash -c 'trap "" TERM; (while :; do sleep 100; done) & while :; do sleep 100; done' &
done
setsid bash -c 'kill -STOP $$' &
"""


def test_fifty_daemons_and_one_that_is_stopped_end_with_their_job(here: Path) -> None:
    found = control(here, STORM)
    assert found["state"] == "COMPLETED"
    nothing_runs(here)


def test_a_run_without_its_state_is_cancelled_or_nobody_can(here: Path, cli, monkeypatch) -> None:
    """The controller ends what it can; where there is none, `cancel` and `wait` say so at once."""
    run, folder = leave("sleep")
    (folder / "local.json").write_text("{")
    found = state(run["job_id"])
    assert found["state"] == "UNKNOWN"
    assert "local.json: " in found["reason_text"]
    assert "CANCELLED" in hpckit("cancel", run["job_id"]).stdout
    nothing_runs(here)  # the controller lives a moment longer than its last word
    clock = SimpleNamespace(monotonic=time.monotonic)  # none that could be waited by
    monkeypatch.setattr(waiting, "time", clock)
    for damage in (lambda path: path.write_text("{"), Path.unlink):
        damage(folder / "local.json")
        record = json.loads((folder / "ranks" / "0.json").read_text())
        record["attempts"][0] |= {"ended": None, "exit_code": None}
        (folder / "ranks" / "0.json").write_text(json.dumps(record))
        for command in ("cancel", "wait"):
            said = cli(command, run["job_id"])
            assert said.status == 3
            assert "no process of this run is on" in said.err


def test_a_rank_that_does_nothing_after_the_others_have_ended_is_ended(here: Path) -> None:
    site = here / "templates" / "sites" / "quick.yaml"
    site.parent.mkdir(parents=True)
    site.write_text("description: quick\nlaunch: {srun_args: [--wait=4]}\n")
    # Those that end do so when all have begun: one that waits for a core would do nothing, too.
    script = f"""\
import os, pathlib, time
folder = pathlib.Path({str(here)!r})
(folder / ("begun-" + os.environ["RANK"])).touch()
while len(list(folder.glob("begun-*"))) < 3:
    time.sleep(0.01)
if os.environ["RANK"] == "1":
    time.sleep(600)
"""
    words = ("--tasks-per-node", "3", "--gpus", "0", "--site", "quick", "--wait")
    run = submit(script, *words, status=1)
    why = "2 of 3 ranks have ended, rank 1 has not, and did nothing for 4 s: hpckit has ended the"
    assert run["state"] == "FAILED"
    assert why in state(run["job_id"])["reason_text"]
    said = hpckit("logs", run["job_id"], "--errors").stdout
    assert why in said
    assert said.splitlines()[-1].startswith("hint: if the last rank had done its work")
    nothing_runs(here)


def test_who_cannot_tell_a_run_to_end_says_how_to_end_it(here: Path) -> None:
    run, folder = leave("sleep")
    mark = folder / ".cancel"
    mark.symlink_to("nowhere")  # no link is followed: as on a full disk
    said = hpckit("cancel", run["job_id"], status=3)
    pid = json.loads((folder / "local.json").read_text())["pid"]
    assert f"{folder} cannot be written" in said.stderr
    assert f"or end its job with all its tasks: kill {pid}\n" in said.stderr
    os.kill(pid, signal.SIGTERM)
    until(lambda: state(run["job_id"])["state"] == "CANCELLED")
    nothing_runs(here)
