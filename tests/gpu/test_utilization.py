"""Utilization against a square wave of kernels whose duty CUDA events tell."""

import subprocess
import threading

import pytest

from tests.gpu import loads, smi
from tests.gpu.checks import Recorder, check
from tests.gpu.machine import Machine
from tests.gpu.sampling import Poll, Run, Span, now_us, sampled, why_not

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


_UTILIZATION = ("utilization", "buffered utilization")


def used_percent(report: Recorder, run: Run, span: Span) -> float:
    """Return the sampler's utilization; end the check where the driver does not tell it."""
    found = run.percent("utilization_permille", span)
    if found is None:
        why = why_not(run, *_UTILIZATION)
        report.not_here(f"NVML does not tell the utilization: {why}")
    return found


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
                  used_percent(report, run, span), unit="%", near=true, within=1.0,
                  source=f"sampler ({source(run)})", peer="CUDA events")  # fmt: skip
    # A host that wakes late makes another wave: as good a truth, as long as it is none of the rest.
    report.figure("duty as it was", true, unit="%", near=percent, within=10.0,
                  source="CUDA events", note="how well the wave was made")  # fmt: skip


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
                  used_percent(report, run, span), unit="%", near=true, within=2.0,
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
                  used_percent(report, run, span), unit="%", near=true,
                  within=1.0 + edge, source=f"sampler ({source(run)})", peer="CUDA events",
                  note=f"{edge:.2f} of the limit are for the edges of {span.seconds:.0f} s",
                  )  # fmt: skip


@check("The sampler against nvidia-smi in the same seconds", budget_s=13,
       needs=("torch", "whole GPU", "program:nvidia-smi"))  # fmt: skip
def test_smi(report: Recorder, machine: Machine) -> None:
    """`--query-gpu` again and again, `dmon` each second, and the sampler, beside one wave."""
    machine.expect(util=50, sm=50 / 132)
    with sampled(machine) as run, Smi(machine, lines=machine.pick(9, 3)) as witness:
        # A program that starts slowly, as on a node of many GPUs, would see the end of a short one.
        made = loads.square_wave(machine, 0.5, period_s=_PERIOD_S, more=witness.goes_on,
                                 seconds=machine.pick(11.0, 3.3))  # fmt: skip
    span = run.covered(made.span.inner(machine.pick(_LEAD_S, 0.0)))
    machine.keep("nvidia-smi", witness.texts)
    rows = witness.query(made.span.inner(machine.pick(_LEAD_S, 0.0)))
    lines = witness.dmon()[machine.pick(3, 0) :]  # the first speak of the time before
    for name, found in (("--query-gpu", rows), ("dmon", lines)):
        if len(found) < 2:
            why = witness.problems.get(name, f"{len(found)} lines came in time")
            report.absent(f"nvidia-smi {name}", why)
    if len(rows) < 2 and len(lines) < 2:
        report.not_here(f"nvidia-smi says nothing of this GPU: {witness.problem()}")
    compare(report, run, span, rows, lines)
    tell_clocks(report, run, rows)


def tell_clocks(report: Recorder, run: Run, rows: list[dict[str, float | None]]) -> None:
    """Compare clocks, which the sampler reads once, with all that nvidia-smi saw."""
    slow = run.slow[-1].gpus[0]._asdict()
    for name, field in (("clocks.current.sm", "sm_mhz"), ("clocks.current.memory", "memory_mhz")):
        mine = slow[field]
        seen = [value for row in rows if (value := row.get(name)) is not None]
        if mine is None or not seen:
            report.absent(name, "the sampler or nvidia-smi does not know it")
            continue
        report.figure(name, mine, unit="MHz", at_least=min(seen) - 60, at_most=max(seen) + 60,
                      source="sampler", peer="nvidia-smi, lowest and highest",
                      note="read once, 5 s after its start")  # fmt: skip


def compare(
    report: Recorder, run: Run, span: Span,
    rows: list[dict[str, float | None]], lines: list[dict[str, float | None]],
) -> None:  # fmt: skip
    """Compare utilization, power and memory, as far as nvidia-smi knows them."""
    used, power = run.percent("utilization_permille", span), run.mean("power_mw", span)
    watts = None if power is None else power / 1e3
    for peer, told, names in (
        ("nvidia-smi --query-gpu", rows, ("utilization.gpu", "power.draw")),
        ("nvidia-smi dmon", lines, ("sm", "pwr")),
    ):
        util, draw = (smi.mean_of(told, name) for name in names)
        if util is None or used is None:
            who = peer if util is None else "the sampler"
            report.absent(f"utilization, beside {peer}", f"{who} does not know it")
        else:
            report.figure(
                "utilization", used, unit="%", near=util, within=3, source="sampler", peer=peer,
                note="nvidia-smi's are readings of single windows",
            )  # fmt: skip
        if draw is None or watts is None:
            who = peer if draw is None else "the sampler"
            report.absent(f"power, beside {peer}", f"{who} does not know it")
        else:
            report.figure("power", watts, unit="W", near=draw, within=max(0.05 * draw, 10),
                          source="sampler, by its energy counter", peer=peer)  # fmt: skip
    memory, kept = run.mean("memory_bytes", span), smi.mean_of(rows, "memory.used")
    if kept is None or memory is None:
        who = "nvidia-smi" if kept is None else "the sampler"
        report.absent("memory, beside nvidia-smi", f"{who} does not know it")
        return
    # A driver older than 510 has no `memory.reserved`, and counts it as used.
    kept += smi.mean_of(rows, "memory.reserved") or 0.0
    report.figure("memory", memory / 2**20, unit="MiB", near=kept, within=16, source="sampler",
                  peer="nvidia-smi, memory.used and memory.reserved")  # fmt: skip


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
        self._names: tuple[str, ...] = QUERY
        self._queries: list[tuple[int, int, str]] = []
        self.texts: dict[str, str] = {"query": "", "dmon": ""}
        self.problems: dict[str, str] = {}

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

    def goes_on(self) -> bool:
        """Tell whether `dmon` has lines to write."""
        return self._threads[1].is_alive()

    def problem(self) -> str:
        """Return why it says nothing."""
        return "; ".join(self.problems.values()) or "it gives no reason"

    def _query(self) -> None:
        while not self._over.is_set():
            words = (f"--query-gpu={','.join(self._names)}", "--format=csv,noheader,nounits")
            begin, text = now_us(), self._said("--query-gpu", *words)
            unknown = smi.unknown_field(text)
            if unknown in self._names:  # of a newer nvidia-smi
                self._names = tuple(name for name in self._names if name != unknown)
                continue
            self._queries.append((begin, now_us(), text))
            self.texts["query"] += text
            self._over.wait(0.5)

    def _dmon(self) -> None:
        self.texts["dmon"] = self._said("dmon", "dmon", "-s", "pucm", "-d", "1", "-c", self._lines)

    def _said(self, name: str, *words: str) -> str:
        try:
            done = subprocess.run(
                ["nvidia-smi", *words, *self._which],
                env=self._environ, capture_output=True, text=True, errors="replace",
                timeout=_SMI_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            self.problems[name] = str(error)
            return ""
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()
            self.problems[name] = said[0] if said else f"it ended with status {done.returncode}"
        return done.stdout

    def query(self, span: Span) -> list[dict[str, float | None]]:
        """Return the lines of queries that began and ended in a stretch of time."""
        texts = [text for begin, end, text in self._queries
                 if begin >= span.begin and end <= span.end]  # fmt: skip
        return smi.read_query("".join(texts), self._names)

    def dmon(self) -> list[dict[str, float | None]]:
        """Return the lines of `dmon`."""
        return smi.read_dmon(self.texts["dmon"], self._index)
