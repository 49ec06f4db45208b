"""Commands that take several ids, one of which means nothing."""

import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

import hpckit
from hpckit.errors import NotFoundError
from hpckit.run_folders.runs import Run
from tests.conftest import Answer, add_program
from tests.unit.made import make_run
from tests.unit.played_slurm import answers, squeue_row

Cli = Callable[..., Answer]


@pytest.fixture
def two(here: Path, fake_slurm: Path) -> list[Run]:
    """Make two runs that Slurm says are over."""
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED") + squeue_row("12", "FAILED"))
    return [make_run(here / "runs", f"ddp-{word}", job_id=word) for word in ("11", "12")]


def errors_in(said: Answer) -> list[str]:
    """Return the words that a command says mean no run."""
    lines = [line for line in said.err.splitlines() if line.startswith("hpckit: error: ")]
    assert all("There is no run '" in line for line in lines), said.err
    return [line.split("'")[1] for line in lines]


def test_status_shows_the_others_and_an_error_for_each_id_that_means_nothing(
    two: list[Run], cli: Cli
) -> None:
    said = cli("status", "11", "lost", "12", "gone")
    assert said.status == 2
    assert "11 COMPLETED" in said.out
    assert "12 FAILED" in said.out
    assert errors_in(said) == ["lost", "gone"]
    # As `stats --json`: who asked for several gets a list, however many there are.
    for words, found in ((("11", "lost"), ["11"]), (("11", "12", "lost"), ["11", "12"])):
        said = cli("status", *words, "--json")
        assert said.status == 2
        assert [row["job_id"] for row in json.loads(said.out)["jobs"]] == found
        assert errors_in(said) == ["lost"]
    assert json.loads(cli("status", "11", "--json").out)["job_id"] == "11"
    for json_too in ((), ("--json",)):
        said = cli("status", "lost", "gone", *json_too)
        assert (said.status, said.out) == (2, "")
        assert errors_in(said) == ["lost", "gone"]


def test_who_gives_several_ids_gets_a_list(
    two: list[Run], cli: Cli, cancelled: Callable[[], list[str]], here: Path
) -> None:
    """Also where one of them alone can be read, or both mean the same."""
    (here / "runs" / two[1].run_id / "run.json").write_text("{")
    said = cli("cancel", "11", two[1].run_id, "--json")
    assert [row["job_id"] for row in json.loads(said.out)["jobs"]] == ["11"]
    said = cli("wait", "11", two[1].run_id, "--json")
    assert [row["job_id"] for row in json.loads(said.out)["jobs"]] == ["11"]
    for command in ("wait", "cancel", "status"):
        assert len(json.loads(cli(command, "11", two[0].run_id, "--json").out)["jobs"]) == 1
        assert json.loads(cli(command, "11", "--json").out)["job_id"] == "11"


def test_who_waits_in_vain_gets_the_document_as_it_stands(
    two: list[Run], cli: Cli, fake_slurm: Path
) -> None:
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING") + squeue_row("12", "COMPLETED"))
    said = cli("wait", "11", "12", "--timeout", "0.1", "--json")
    assert said.status == 3
    assert "1 of 2 runs is not over after 0.1 s" in said.err
    states = {row["job_id"]: row["state"] for row in json.loads(said.out)["jobs"]}
    assert states == {"11": "RUNNING", "12": "COMPLETED"}
    assert cli("wait", "11", "--timeout", "0").out == ""


def test_wait_refuses_at_once_an_id_that_means_nothing(
    two: list[Run], cli: Cli, fake_slurm: Path
) -> None:
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING"))
    said = cli("wait", "11", "lost")
    assert (said.status, said.out) == (2, "")
    assert errors_in(said) == ["lost"]


# Jobs 11, 12 and 13 of this user's run until scancel ends them; 99 never was.
SQUEUE = """#!/bin/bash
for word; do case $word in --format=*) row=${word#*=} ;; --jobs=*) ids=${word#*=} ;; esac; done
[[ ,$ids, != *,99,* ]] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
for cell in %u=USER %a=lab %P=gpu %q=normal %T=RUNNING %M=1:00 %l=2:00 %V=1 %S=1 %e=2 %N=c1 \\
    %r=None %j=x; do row=${row//${cell%%=*}/${cell#*=}}; done
for id in ${ids//,/ }; do
    [[ $id == 1[123] ]] && ! grep -qx "$id" "$FAKE_SLURM_DIR/cancelled" || continue
    line=${row//%i/$id}; printf '%s\\n' "${line//%A/$id}"
done
"""
SCANCEL = '#!/bin/bash\nprintf "%s\\n" "$@" >>"$FAKE_SLURM_DIR/cancelled"\n'


@pytest.fixture
def cancelled(two: list[Run], fake_slurm: Path, here: Path) -> Callable[[], list[str]]:
    """Return what says which jobs scancel was asked to end."""
    me = pwd.getpwuid(os.getuid()).pw_name
    (fake_slurm / "cancelled").touch()
    add_program(here.parent / "bin" / "squeue", SQUEUE.replace("USER", me))
    add_program(here.parent / "bin" / "scancel", SCANCEL)
    return lambda: (fake_slurm / "cancelled").read_text().split()


@pytest.mark.parametrize("wrong", ["gone", "99", "11_7"])
@pytest.mark.parametrize("last", [True, False])
def test_cancel_ends_nothing_where_an_id_means_nothing(
    cli: Cli, cancelled: Callable[[], list[str]], wrong: str, last: bool
) -> None:
    words = ["13", "11", wrong] if last else [wrong, "11", "13"]
    said = cli("cancel", *words)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("hpckit: error: Nothing was cancelled. There is no run ")
    assert repr(wrong) in said.err
    assert cancelled() == []
    assert "Nothing was cancelled" not in cli("cancel", wrong).err
    said = cli("cancel", wrong, "11", "lost")
    assert said.err.count("There is no run ") == 2  # who mends one shall not meet the next
    assert repr(wrong) in said.err
    assert repr("lost") in said.err
    assert cancelled() == []


def test_cancel_in_python_ends_nothing_where_an_id_means_nothing(
    two: list[Run], cancelled: Callable[[], list[str]]
) -> None:
    run = hpckit.find("11")
    with pytest.raises(NotFoundError, match=r"^Nothing was cancelled\. .*'gone'"):
        hpckit.cancel([run, "gone"])
    assert cancelled() == []
    assert hpckit.cancel([run, "12"]) == [run, hpckit.find("12")]
    assert cancelled() == ["11", "12"]


def test_cancel_ends_the_others_where_slurm_refuses_one(
    here: Path, cli: Cli, cancelled: Callable[[], list[str]]
) -> None:
    refuse = '#!/bin/bash\n[[ $* != *13* ]] || { echo "scancel: error: denied" >&2; exit 1; }\n'
    add_program(here.parent / "bin" / "scancel", refuse + SCANCEL)
    said = cli("cancel", "13", "11", "12")
    assert said.status == 3
    assert "hpckit: error: Slurm has job 13, and it could not be cancelled" in said.err
    assert "Nothing was cancelled" not in said.err
    assert cancelled() == ["11", "12"]
    assert "11 CANCELLED" in said.out


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("11;box", "Leave out the cluster: give 11."),
        ("11_3;box-2", "Leave out the cluster: give 11_3."),
        ("11_[0-3]", "Give an array's tasks one by one, or all of them as 11."),
        ("11_[1,5%2]", "Give an array's tasks one by one, or all of them as 11."),
        ("11_1-4", "Give an array's tasks one by one, or all of them as 11."),
        ("99_1", None),
        ("run-11_1-4", None),
    ],
)
def test_what_slurms_programs_print_beside_an_id(
    two: list[Run], cli: Cli, word: str, said: str | None
) -> None:
    """sbatch --parsable prints `11;box` where there are several clusters, squeue `11_[0-3]`."""
    err = cli("status", word).err
    assert err.startswith(f"hpckit: error: There is no run {word!r} in ")
    assert (said or "See `hpckit jobs`") in err
    assert said or "Leave out" not in err
    assert said or "one by one" not in err
