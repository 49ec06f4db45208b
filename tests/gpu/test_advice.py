"""`hpckit doctor gpu`, and advice on short jobs that leave a GPU idle, waiting or nearly empty."""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.gpu.checks import Recorder, check, number
from tests.gpu.machine import Machine

_HPCKIT = (sys.executable, "-m", "hpckit")
# hpckit finds the GPUs for runs on this machine by nvidia-smi.
_NEEDS = (
    "torch",
    "shared GPU",
    "program:nvidia-smi",
    "package:submitit",
    "package:pathspec",
    "package:typer",
    "package:jinja2",
)
_TOLD = (*_NEEDS, "utilization")
_LOAD = Path(__file__).with_name("load.py")
# Rules speak of jobs of minutes; these take seconds, and a good part of that is torch's import. So
# only times are lowered, and for `busy-but-empty` the share of time in which kernels ran.
_SITE = """\
description: this machine, with the rules' times shortened
advice:
  gpu-unused: {min_elapsed_s: 5}
  loader-stalls: {min_elapsed_s: 5}
  low-gpu-utilization: {min_elapsed_s: 5}
  busy-but-empty: {min_busy_hours: 0.001, busy_percent: 40}
"""
NOTE = (
    "thresholds are the shipped ones, but for the shortest times, and busy-but-empty's 90 % of time"
)


class Home:
    """An empty home and project, in which hpckit runs jobs on this machine."""

    def __init__(self, report: Recorder, machine: Machine) -> None:
        self.report = report
        self.keep = machine.keep
        self.folder = Path(tempfile.mkdtemp(prefix="home-", dir=machine.folder))
        self.project = self.folder / "project"
        (self.project / "templates" / "sites").mkdir(parents=True)
        (self.project / "templates" / "sites" / "short.yaml").write_text(_SITE)
        shutil.copy(_LOAD, self.project)
        self.environ = {
            name: value
            for name, value in machine.environment({"HOME": str(self.folder)}).items()
            if not name.startswith(("XDG_", "HPCKIT_COLLECTIONS", "SBATCH_"))
        }

    def hpckit(self, *words: str, limit_s: float = 90.0) -> str:
        """Run a command of hpckit; return what it prints.

        Raises:
            AssertionError: it failed, with what it said.
        """
        done = self.report.child(
            [*_HPCKIT, *words], limit_s=limit_s, env=self.environ, cwd=self.project
        )
        if done.returncode:
            said = f"{done.stdout[-800:]}{done.stderr[-1500:]}"
            raise AssertionError(f"hpckit {words[0]} ended with {done.returncode}: {said}")
        return done.stdout

    def job(self, kind: str, seconds: float) -> dict[str, Any]:
        """Run one kind of load as a job; return what `hpckit stats` says of it."""
        self.hpckit(
            *("submit", "serial", "load.py", "--site", "short", "--executor", "local"),
            *("--gpus", "1", "--sample-interval", "1", "--runs", str(self.folder / "runs")),
            *("--wait", "--", kind, f"{seconds:g}"),
        )
        said = self.hpckit("stats", "latest", "--runs", str(self.folder / "runs"), "--json")
        found: dict[str, Any] = json.loads(said)
        self.keep(f"hpckit stats of {kind}", found)
        return found


@check("hpckit doctor gpu", budget_s=7, needs=_NEEDS)
def test_doctor(report: Recorder, machine: Machine) -> None:
    """It submits a job of its own to this machine, which multiplies on the GPU by torch."""
    home = Home(report, machine)
    done = json.loads(home.hpckit("doctor", "gpu", "--json", "--runs", str(home.folder / "runs")))
    for row in done["checks"]:
        text = f"{row['what']} {row['todo']}".strip()
        report.fact(row["level"], text, good=row["level"] == "ok")
    said = " ".join(row["what"] for row in done["checks"])
    name = machine.unit.info.name or "?"
    report.fact("it names the GPU", "yes" if name in said else "no", good=name in said)
    report.fact("it multiplied by torch", "yes" if "torch" in said else "no",
                good=("no torch" not in said and "torch" in said) or machine.dry)  # fmt: skip


def advised(report: Recorder, found: Mapping[str, Any]) -> list[str]:
    """Record which rules spoke, and the figures behind it; return the rules."""
    rules = [row["id"] for row in found["advice"]]
    levels = [f"{row['id']} ({row['severity']})" for row in found["advice"]]
    report.fact("advice", ", ".join(levels) or "none", note=NOTE)
    gpu = of_gpu(found)
    for name in ("utilization_percent", "sm_active_percent", "dram_percent", "idle_percent"):
        if gpu.get(name) is not None:
            report.figure(name, gpu[name], unit="%", source="hpckit stats")
    report.figure("the job took", found["elapsed_s"], unit="s")
    return rules


def of_gpu(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the figures of the job's GPU.

    Raises:
        AssertionError: its samples have none.
    """
    rows: list[Mapping[str, Any]] = found["per_gpu"]
    assert rows, f"hpckit stats has no figures of the job's GPU: {found.get('notes')}"
    return rows[0]


def expect_rule(report: Recorder, rules: list[str], rule: str, *, wanted: bool) -> None:
    """Record whether a rule spoke as it should."""
    spoke = rule in rules
    report.fact(f"{rule} {'speaks' if wanted else 'is silent'}", "yes" if spoke == wanted else "no",
                good=spoke == wanted)  # fmt: skip


@check("Advice on a job that runs no kernel", budget_s=9, needs=_TOLD)
def test_resting(report: Recorder, machine: Machine) -> None:
    """`gpu-unused` speaks."""
    machine.expect(util=0, sm=0, occupancy=0, tensor=0, dram=0, power=70)
    found = Home(report, machine).job("resting", 6.5)
    rules = advised(report, found)
    report.figure("utilization of an idle GPU", of_gpu(found)["utilization_percent"],
                  unit="%", at_most=0.5)  # fmt: skip
    expect_rule(report, rules, "gpu-unused", wanted=True)


@check(
    "Advice on a job that waits for its input",
    budget_s=28,
    needs=(*_TOLD, "whole GPU"),
)
def test_waiting(report: Recorder, machine: Machine) -> None:
    """`loader-stalls` speaks: half of the time no kernel runs, in pauses of 1.5 s."""
    machine.expect_wave(util=100, period_s=2.0)
    found = Home(report, machine).job("waiting", machine.pick(20.0, 15.0))
    rules = advised(report, found)
    stalls = of_gpu(found).get("stalls") or {}
    for name, value in stalls.items():
        if isinstance(value, int | float):
            report.figure(f"stalls: {name}", value)
    expect_rule(report, rules, "loader-stalls", wanted=True)
    expect_rule(report, rules, "gpu-unused", wanted=False)


@check("Advice on a job that keeps one SM busy", budget_s=16, needs=(*_TOLD, "GPM"))
def test_one_sm(report: Recorder, machine: Machine) -> None:
    """`busy-but-empty` speaks."""
    one = 100 / machine.multiprocessors
    machine.expect(util=100, sm=one, occupancy=one / 64, tensor=0, dram=0)
    found = Home(report, machine).job("one-sm", machine.pick(8.0, 5.0))
    rules = advised(report, found)
    busy = of_gpu(found).get("busy_sm_percent")
    report.figure("SMs in use while a kernel ran", busy, unit="%", at_most=max(5.0, 1.5 * one),
                  note=f"one of {machine.multiprocessors} is {number(one)} %")  # fmt: skip
    expect_rule(report, rules, "busy-but-empty", wanted=True)
    expect_rule(report, rules, "loader-stalls", wanted=False)


@check("Advice on a job that is bound by memory", budget_s=15, needs=(*_TOLD, "GPM"))
def test_copying(report: Recorder, machine: Machine) -> None:
    """Nothing is wrong with it: no rule says that the GPU is idle or empty."""
    machine.expect(util=100, sm=95, tensor=0, dram=90)
    found = Home(report, machine).job("copying", machine.pick(8.0, 4.0))
    rules = advised(report, found)
    for rule in ("busy-but-empty", "loader-stalls", "gpu-unused"):
        expect_rule(report, rules, rule, wanted=False)
    report.figure("memory bandwidth over the whole job", of_gpu(found).get("dram_percent"),
                  unit="%", at_least=25, note="torch's import is a part of the job")  # fmt: skip
