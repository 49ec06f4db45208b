"""Power, energy, and what GPM says of kernels that are known."""

from tests.gpu import loads
from tests.gpu.checks import Recorder, check
from tests.gpu.machine import Machine
from tests.gpu.sampling import Poll, Run, Span, sampled, why_not

# How many points the tensor pipe may be active beyond what products say, by compute capability: it
# also counts in cycles that finish no product. An H200 had 94 for 84 %; of others nobody knows.
_BEYOND = {(9, 0): 15.0}


@check("The energy counter against power and time", budget_s=9, needs=("torch", "whole GPU"))
def test_energy(report: Recorder, machine: Machine) -> None:
    """Joules by the counter are NVML's watts, read 20 times a second, times seconds."""
    board = machine.unit.board
    asked = {"power": lambda: machine.ask("nvmlDeviceGetPowerUsage", board)}
    machine.expect()
    with sampled(machine) as run, Poll(machine, asked) as witness:
        size = machine.pick(4096, 128)
        busy = loads.keep_busy(
            machine, loads.product(machine, size, "float32"), machine.pick(8, 3.3)
        )
    span = run.covered(busy.span.inner(machine.pick(2.0, 0.0)))
    compare_energy(report, run, span, witness)


def compare_energy(report: Recorder, run: Run, span: Span, witness: Poll) -> None:
    """Compare what the counter grew by with the watts that another thread read meanwhile."""
    grown = run.grown("energy_mj", span)
    if grown is None:
        why = why_not(run, "energy")
        report.not_here(f"there is no energy counter (Volta and newer have one): {why}")
    joules, seconds = grown[0] / 1e3, grown[1]
    watts = witness.mean("power", span)
    if watts is None:
        report.not_here("NVML does not tell the power")
    expected = watts / 1e3 * seconds
    report.figure("energy", joules, unit="J", near=expected, within=0.05 * expected,
                  source="sampler, the counter", peer="NVML's power × time",
                  note=f"{seconds:.1f} s of fp32 products, from 2 s after their begin")  # fmt: skip
    power = run.mean("power_mw", span)
    report.figure("power", None if power is None else power / 1e3, unit="W",
                  near=joules / seconds, within=0.01 * joules / seconds, source="sampler",
                  peer="its energy over time")  # fmt: skip


@check("A kernel on one SM: busy, and nearly empty", budget_s=6, needs=("torch", "GPM"))
def test_one_block(report: Recorder, machine: Machine) -> None:
    """Utilization says 100 %, SM activity 1 of all SMs: why utilization misleads."""
    one = 100 / machine.multiprocessors
    machine.expect(util=100, sm=one, occupancy=one / 64, tensor=0, dram=0)
    with sampled(machine) as run:
        busy = loads.keep_busy(machine, loads.spin(machine), machine.pick(5.0, 3.3))
    span = run.covered(busy.span.inner(machine.pick(1.5, 0.0)))
    if run.percent("sm_permille", span) is None:
        report.not_here(f"GPM says nothing: {why_not(run, 'GPM')}")
    report.figure("utilization", run.percent("utilization_permille", span), unit="%",
                  at_least=99, source="sampler")  # fmt: skip
    report.figure("SM activity", run.percent("sm_permille", span), unit="%", near=one, within=0.5,
                  source="sampler (GPM)", peer=f"1 of {machine.multiprocessors} SMs")  # fmt: skip
    report.figure("tensor cores", run.percent("tensor_permille", span), unit="%", at_most=0.5)
    report.figure("memory bandwidth", run.percent("dram_permille", span), unit="%", at_most=2)


@check("A large product in bf16: tensor cores", budget_s=6, needs=("torch", "GPM", "bf16"))
def test_product(report: Recorder, machine: Machine) -> None:
    """Tensor activity is what was computed, of what can be at the clock that it ran with."""
    size = machine.pick(8192, 64)
    call = loads.product(machine, size, "bfloat16")
    asked = {"mhz": lambda: machine.ask("nvmlDeviceGetClockInfo", machine.unit.board, 1)}
    machine.expect(util=100, sm=98, tensor=85, dram=30)
    with sampled(machine) as run, Poll(machine, asked) as witness:
        busy = loads.keep_busy(machine, call, machine.pick(5.0, 3.3))
    span = run.covered(busy.span.inner(machine.pick(1.5, 0.0)))
    mhz = witness.mean("mhz", span)
    rate = 2 * size**3 / busy.each_s
    report.figure("product of 8192", rate / 1e12, unit="TFLOP/s", source="CUDA events",
                  note=f"at {0 if mhz is None else mhz:.0f} MHz")  # fmt: skip
    found = run.percent("tensor_permille", span)
    if found is None:
        report.not_here(f"GPM says nothing: {why_not(run, 'GPM')}")
    per_cycle = machine.flops_per_cycle("bf16")
    share = None
    if per_cycle and mhz:
        share = 100 * rate / (per_cycle * machine.multiprocessors * mhz * 1e6)
    tell_tensor(report, found, share, _BEYOND.get(machine.capability))
    report.figure("SM activity", run.percent("sm_permille", span), unit="%", at_least=80)


def tell_tensor(
    report: Recorder, found: float | None, share: float | None, beyond: float | None
) -> None:
    """Record the activity of tensor cores beside the share of products that were done, in percent.

    It cannot be less than that share. How much more it is depends on the chip.
    """
    if share is None:
        report.absent("the share of the chip's rate", "not known of this chip, or of its clock")
        report.figure("tensor cores", found, unit="%", at_least=10, at_most=100.5,
                      source="sampler (GPM)", note="they are in use: no more is known")  # fmt: skip
        return
    most = 100.5 if beyond is None else min(share + beyond, 100.5)
    report.figure("tensor cores", found, unit="%", at_least=share - 3, at_most=most,
                  source="sampler (GPM)",
                  peer=f"{share:.1f} % by products done, of what the SMs can")  # fmt: skip


@check("A copy in the GPU's memory: bandwidth", budget_s=6, needs=("torch", "GPM"))
def test_copy(report: Recorder, machine: Machine) -> None:
    """DRAM activity is the bytes moved, of the memory's bandwidth."""
    machine.release()
    size = machine.pick(min(2 * 2**30, machine.memory().free // 4), 2**16)
    call = loads.copy(machine, size)
    machine.expect(util=100, sm=95, tensor=0, dram=90)
    with sampled(machine) as run:
        busy = loads.keep_busy(machine, call, machine.pick(5.0, 3.3))
    span = run.covered(busy.span.inner(machine.pick(1.5, 0.0)))
    rate, peak = 2 * size / busy.each_s, machine.dram_peak()
    found = run.percent("dram_permille", span)
    if found is None:
        report.not_here(f"GPM says nothing: {why_not(run, 'GPM')}")
    report.figure("copy", rate / 1e12, unit="TB/s", source="CUDA events",
                  note="bytes read and written")  # fmt: skip
    if peak is None:
        report.absent("the memory's bandwidth", "NVML does not tell its bus and clock")
        whole = machine.unit.info.mig_parent is None
        report.figure("memory bandwidth", found, unit="%", at_least=60 if whole else None,
                      source="sampler (GPM)")  # fmt: skip
    else:
        report.figure("memory bandwidth", found, unit="%", near=100 * rate / peak, within=8,
                      source="sampler (GPM)", peer="bytes moved, of bus × clock × 2",
                      note=f"{peak / 1e12:.2f} TB/s")  # fmt: skip
    report.figure("tensor cores", run.percent("tensor_permille", span), unit="%", at_most=1)


@check("A MIG slice: GPM instead of utilization", budget_s=8, needs=("torch", "MIG", "GPM"))
def test_slice(report: Recorder, machine: Machine) -> None:
    """NVML has no utilization of a slice; the sampler's is GPM's, and energy is the whole GPU's."""
    machine.expect(util=100)
    with sampled(machine) as run:
        busy = loads.keep_busy(machine, loads.spin(machine), 5.0)
    span = run.covered(busy.span.inner(1.5))
    report.figure("utilization of the slice", run.percent("utilization_permille", span), unit="%",
                  at_least=98, source="sampler (GPM)")  # fmt: skip
    unknown = run.samples[-1].gpus[0].energy_mj is None
    report.fact("energy of the slice", "unknown" if unknown else "told", good=unknown)
