"""Utilization against a square wave of kernels whose duty CUDA events tell."""

import subprocess
import threading

import pytest

from tests.gpu import loads, smi
from tests.gpu.checks import Recorder, check
from tests.gpu.machine import Machine
from tests.gpu.sampling import Poll, Run, Span, sampled

# Short beside the driver's windows (1/6 to 1 s): each holds eight or more periods, so that single
# windows, which are all that a driver without a buffer tells, are within some points of the duty,
# and the edges between two samples below 0.1 points.
_PERIOD_S = 0.02
_LEAD_S, _TAIL_S = 2.0, 0.2
_SMI_S = 60.0
QUERY = (
    "utilization.gpu", "memory.used", "memory.reserved", "memory.total", "power.draw",
    "clocks.current.sm", "clocks.current.memory", "temperature.gpu", "temperature.memory",
)  # fmt: skip


def wave(
    report: Recorder, machine: Machine, percent: float, period_s: float, seconds: float
) -> tuple[Run, Span, float]:
    """Run the sampler beside a wave; return its run, what it covers, and the true percentage."""
    machine.expect(util=percent, sm=percent / 132)
    with sampled(machine) as run, Poll.of_gpm(machine) as gpm:
        made = loads.square_wave(machine, percent / 100, period_s=period_s, seconds=seconds)
    span = run.covered(made.span.inner(machine.pick(_LEAD_S, 0.0), machine.pick(_TAIL_S, 0.0)))
    if gpm.rows:
        report.figure("GPM's word: the engine was busy", gpm.mean("graphics", span), unit="%",
                      source="GPM", note="another counter than NVML's utilization")  # fmt: skip
    return run, span, made.duty(span) * 100


@pytest.mark.parametrize("percent", [25, 50, 90], ids=lambda value: f"{value} %")
@check("Utilization against a known duty", budget_s=8.5, needs=("torch", "whole GPU"))
def test_duty(report: Recorder, machine: Machine, percent: int) -> None:
    """Within one percentage point of what the GPU's own clock says."""
    run, span, true = wave(report, machine, percent, _PERIOD_S, machine.pick(7.7, 3.3))
    report.figure(f"utilization, kernels for {percent} % of each 20 ms",
                  run.percent("utilization_permille", span), unit="%", near=true, within=1.0,
                  source=f"sampler ({source(run)})", peer="CUDA events")  # fmt: skip
    report.figure("duty as it was", true, unit="%", near=percent, within=3.0, source="CUDA events",
                  note="how well the wave was made")  # fmt: skip


@check("Utilization of work with pauses", budget_s=13, needs=("torch", "whole GPU"))
def test_pauses(report: Recorder, machine: Machine) -> None:
    """What a driver that keeps no readings of an idle GPU would make wrong.

    Between two rests: there is no edge at which a reading of the driver's may come late.
    """
    machine.expect_wave(util=100, period_s=2.0)
    with sampled(machine) as run, Poll.of_gpm(machine):
        made = loads.pauses(machine, busy_s=1.3, idle_s=1.3, times=machine.pick(3, 1))
    span = run.covered(made.span.inner(machine.pick(1.2, 0.0)))
    true = 100 * made.share(span)
    report.figure("utilization, kernels for 1.3 s of each 2.6 s",
                  run.percent("utilization_permille", span), unit="%", near=true, within=2.0,
                  source=f"sampler ({source(run)})", peer="CUDA events",
                  note=f"over {span.seconds:.1f} s that begin and end with a rest")  # fmt: skip


def source(run: Run) -> str:
    """Return how utilization was read."""
    found = [row.gpus[0].utilization_source for row in run.slow if row.gpus[0].utilization_source]
    return found[-1] if found else "source unknown"


@pytest.mark.parametrize("period_s", [0.005], ids=lambda value: f"{value * 1e3:g} ms")
@check("Utilization of a fast rhythm", budget_s=8, needs=("torch", "whole GPU"))
def test_rhythm(report: Recorder, machine: Machine, period_s: float) -> None:
    """30 % of periods so short that no window of the driver's tells them apart."""
    run, span, true = wave(report, machine, 30, period_s, machine.pick(7.2, 3.3))
    edge = 100 * period_s / span.seconds * 0.3
    report.figure(f"utilization, kernels for 30 % of each {period_s * 1e3:g} ms",
                  run.percent("utilization_permille", span), unit="%", near=true,
                  within=1.0 + edge, source=f"sampler ({source(run)})", peer="CUDA events",
                  note=f"{edge:.2f} of the limit are for the edges of {span.seconds:.0f} s",
                  )  # fmt: skip


@check("The sampler against nvidia-smi in the same seconds", budget_s=13,
       needs=("torch", "whole GPU", "program:nvidia-smi"))  # fmt: skip
def test_smi(report: Recorder, machine: Machine) -> None:
    """`--query-gpu` again and again, `dmon` each second, and the sampler, beside one wave."""
    machine.expect(util=50, sm=50 / 132)
    count = machine.pick(9, 3)
    with sampled(machine) as run, Smi(machine, lines=count) as witness:
        made = loads.square_wave(machine, 0.5, period_s=_PERIOD_S, seconds=machine.pick(11.0, 3.3))
    span = run.covered(made.span.inner(machine.pick(_LEAD_S, 0.0)))
    machine.keep("nvidia-smi", witness.texts)
    rows = witness.query()[machine.pick(4, 0) :]  # the first speak of the time before
    lines = witness.dmon()[machine.pick(3, 0) :]
    report.figure("lines of nvidia-smi --query-gpu", len(rows), at_least=machine.pick(5, 1))
    report.figure("lines of nvidia-smi dmon", len(lines), at_least=machine.pick(5, 1))
    compare(report, run, span, rows, lines)
    clocks = run.slow[-1].gpus[0]._asdict()
    for name, field in (("clocks.current.sm", "sm_mhz"), ("clocks.current.memory", "memory_mhz")):
        report.figure(name, clocks[field], unit="MHz", near=known(smi.mean_of(rows, name)),
                      within=60, source="sampler", peer="nvidia-smi",
                      note="read once, 5 s after its start")  # fmt: skip


def compare(
    report: Recorder, run: Run, span: Span,
    rows: list[dict[str, float | None]], lines: list[dict[str, float | None]],
) -> None:  # fmt: skip
    """Compare utilization, power and memory."""
    used = run.percent("utilization_permille", span)
    power = run.mean("power_mw", span)
    watts = None if power is None else power / 1e3
    for peer, util, draw in (
        ("nvidia-smi --query-gpu", smi.mean_of(rows, "utilization.gpu"),
         smi.mean_of(rows, "power.draw")),
        ("nvidia-smi dmon", smi.mean_of(lines, "sm"), smi.mean_of(lines, "pwr")),
    ):  # fmt: skip
        report.figure("utilization", used, unit="%", near=known(util), within=3, source="sampler",
                      peer=peer, note="nvidia-smi's are readings of single windows")  # fmt: skip
        near = known(draw)
        report.figure("power", watts, unit="W", near=near, within=max(0.05 * near, 10),
                      source="sampler, by its energy counter", peer=peer)  # fmt: skip
    memory = run.mean("memory_bytes", span)
    kept = smi.mean_of(rows, "memory.reserved")
    told = known(smi.mean_of(rows, "memory.used")) + (kept or 0.0)
    report.figure("memory", None if memory is None else memory / 2**20, unit="MiB", near=told,
                  within=16, source="sampler",
                  peer="nvidia-smi, memory.used and memory.reserved")  # fmt: skip


def known(value: float | None) -> float:
    """Return a number; what nobody knows is near nothing."""
    return float("nan") if value is None else value


class Smi:
    """nvidia-smi while something runs: a process for each query, as scripts do, and one `dmon`.

    `dmon` ends by itself: what it has not written yet would be lost with it.
    """

    def __init__(self, machine: Machine, *, lines: int) -> None:
        self._environ = machine.environment()
        self._index = machine.unit.info.index
        self._which = ("-i", machine.unit.info.pci or str(self._index))
        self._lines = str(lines)
        self._over = threading.Event()
        self.texts: dict[str, str] = {"query": "", "dmon": ""}

    def __enter__(self) -> "Smi":
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._query, self._dmon)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._threads[1].join(_SMI_S)
        self._over.set()
        self._threads[0].join(_SMI_S)

    def _query(self) -> None:
        words = (f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits")
        while not self._over.is_set():
            self.texts["query"] += self._said(*words)
            self._over.wait(0.5)

    def _dmon(self) -> None:
        self.texts["dmon"] = self._said("dmon", "-s", "pucm", "-d", "1", "-c", self._lines)

    def _said(self, *words: str) -> str:
        done = subprocess.run(
            ["nvidia-smi", *words, *self._which],
            env=self._environ, capture_output=True, text=True, timeout=_SMI_S,
        )  # fmt: skip
        return done.stdout

    def query(self) -> list[dict[str, float | None]]:
        """Return the lines of `--query-gpu`."""
        return smi.read_query(self.texts["query"], QUERY)

    def dmon(self) -> list[dict[str, float | None]]:
        """Return the lines of `dmon`."""
        return smi.read_dmon(self.texts["dmon"], self._index)
