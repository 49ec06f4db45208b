"""The checks of `make test-gpu`, made dry: the CPU, the stub NVML, a program that plays nvidia-smi.

So a wrong word in them shows here. That they can fail is shown by a stub that plays something else
than what they know, and by figures made by hand.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from hpckit.stats.sampler.gpu_library import GpuLibraryError
from hpckit.stats.sampler.job_gpus import Unit
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import (
    GPU_SAMPLED,
    GpuInfo,
    GpuSample,
    Header,
    Record,
    Sample,
    file_name,
)
from tests.conftest import needs
from tests.gpu.checks import NotHere, Recorder
from tests.gpu.loads import Beat, Wave
from tests.gpu.machine import first_unit
from tests.gpu.sampling import Poll, Run, Span
from tests.gpu.test_activity import compare_energy, tell_tensor
from tests.gpu.test_sampler import (
    has_own_pids,
    restlessness,
    tell_fields,
    tell_loop,
    tell_processes,
)
from tests.gpu.test_utilization import compare
from tests.pages import ROOT
from tests.stats.conftest import Start, read_folder
from tests.stats.stub.script import Gpu, busy, uuid

WATTS = 400.0
# The stub's words for what a board may refuse, and NVML's numbers of how.
REFUSED = ("energy", "power", "memory", "utilization", "samples", "clocks", "throttle",
           "temperature", "fields", "ecc", "remapped", "processes", "gpm")  # fmt: skip
NOT_SUPPORTED, NO_PERMISSION, TIMEOUT = 3, 4, 10


def dry(out: Path, words: str, **environ: str) -> dict[str, Any]:
    """Make some checks dry; return the report's checks by name, without pytest's path."""
    argv = [sys.executable, "-m", "tests.gpu", "--dry", "--out", str(out), "-k", words]
    done = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, timeout=550, env={**os.environ, **environ}
    )
    document = json.loads((out / "gpu-report.json").read_text())
    assert document["not_made"] == [], done.stdout + done.stderr
    return {row["id"].rpartition("::")[2]: row for row in document["checks"]}


def verdicts(checks: dict[str, Any]) -> dict[str, str]:
    return {name: row["verdict"] for name, row in checks.items()}


@pytest.mark.long
@pytest.mark.torch
def test_the_samplers_checks_run_dry_and_keep_their_limits(tmp_path: Path) -> None:
    needs("torch")
    words = "fields or processes or test_memory or (duty and 25) or one_block or resting"
    found = dry(tmp_path, words, HPCKIT_GPU_ENFORCE="1")
    assert verdicts(found) == dict.fromkeys(
        ("test_fields", "test_processes", "test_memory", "test_duty[25 %]", "test_one_block",
         "test_resting"), "passed",
    ), found  # fmt: skip


@pytest.mark.long
@pytest.mark.torch
def test_they_fail_where_the_sampler_says_something_else(tmp_path: Path) -> None:
    needs("torch")
    skew = {"HPCKIT_GPU_SKEW": "util=2 sm=1", "HPCKIT_GPU_ENFORCE": "1"}
    found = dry(tmp_path, "(duty and 25) or one_block", **skew)
    assert verdicts(found) == {"test_duty[25 %]": "failed", "test_one_block": "failed"}
    assert "and the limit is 25 ± 1" in found["test_duty[25 %]"]["why"]
    assert found["test_one_block"]["why"].startswith("SM activity: 1.8 %")


@pytest.mark.long
@pytest.mark.torch
def test_what_a_driver_does_not_tell_is_absent_with_its_reason(tmp_path: Path) -> None:
    """An old one, a guest's, or WSL's: neither a failure, nor passed without a figure."""
    needs("torch")
    words = "fields or processes or test_memory or energy or (duty and 25) or resting or alone"
    found = dry(
        tmp_path, f"({words} or test_smi) and not models", HPCKIT_GPU_ENFORCE="1",
        HPCKIT_GPU_REFUSES="gpm energy memory processes utilization samples",
    )  # fmt: skip
    whys = {name: row["why"] for name, row in found.items() if row["verdict"] == "not here"}
    assert whys.keys() == found.keys() - {"test_fields", "test_smi"}
    assert "nvmlDeviceGetMemoryInfo" in whys["test_memory"]
    assert "nvmlDeviceGetTotalEnergyConsumption" in whys["test_energy"]
    assert "nvmlDeviceGetUtilizationRates" in whys["test_duty[25 %]"]
    assert "nvmlDeviceGetComputeRunningProcesses" in whys["test_processes"]
    assert verdicts(found)["test_fields"] == verdicts(found)["test_smi"] == "passed", found
    told = {row["name"] for row in found["test_smi"]["figures"]}
    assert told == {"power", "clocks.current.sm", "clocks.current.memory"}


@pytest.mark.long
@pytest.mark.torch
def test_checks_of_a_slice_keep_their_limits(tmp_path: Path) -> None:
    needs("torch")
    words = "fields or test_memory or slice or one_sm or alone or (duty and 25)"
    found = dry(tmp_path, words, HPCKIT_GPU_ENFORCE="1", HPCKIT_GPU_REFUSES="mig")
    assert verdicts(found) == {
        "test_fields": "passed", "test_memory": "passed", "test_slice": "passed",
        "test_one_sm": "passed", "test_alone": "not here", "test_duty[25 %]": "not here",
    }, found  # fmt: skip


@pytest.mark.long
@pytest.mark.torch
def test_all_others_of_the_sampler_run_dry(tmp_path: Path) -> None:
    """What they say depends on this machine's load: no limit holds."""
    needs("torch")
    parts = (
        "test_smi or test_energy or test_cost or test_calls or test_rhythm or test_machine",
        "test_doctor or test_waiting or test_product or test_slice",
        "test_one_sm or test_copy or test_pauses",
    )
    with ThreadPoolExecutor(3) as pool:  # they mostly wait
        made = pool.map(lambda words: dry(tmp_path / words[-4:], words), parts)
    found = {name: row for part in made for name, row in part.items()}
    assert set(verdicts(found).values()) == {"passed", "not here"}, found
    assert [name for name, row in found.items() if row["verdict"] == "not here"] == ["test_slice"]


def made_run(folder: Path, *, permille: int, watts: float, memory: int = 2**32) -> tuple[Run, Span]:
    """Return a run of eleven samples, one each second, with constant figures."""
    header = Header(host="n", boot_id=None, pid=7, epoch_us=10**15, mono_us=0, interval_us=10**6,
                    gpus=(GpuInfo(index=0, uuid="GPU-1"),))  # fmt: skip
    encode = encoder(1)
    lines = [encode(header)]
    for second in range(11):
        gpu = GpuSample(energy_mj=round(10**6 + second * watts * 1e3), power_mw=round(watts * 1e3),
                        utilization_permille=permille, memory_bytes=memory)  # fmt: skip
        lines.append(encode(Sample(mono_us=second * 10**6, gpus=(gpu,))))
    (folder / file_name("n", 0, 7)).write_bytes(b"".join(lines))
    return Run(folder), Span(0, 10**7)


def polled(watts: float) -> Poll:
    rows = {"power": [(at * 50_000, watts * 1e3) for at in range(201)]}
    return Poll(machine=None, asked={}, rows=rows)


@pytest.mark.parametrize(("watts", "kept"), [(400, True), (415, True), (425, False), (0, False)])
def test_energy_is_power_times_time(tmp_path: Path, watts, kept) -> None:
    run, span = made_run(tmp_path, permille=500, watts=WATTS)
    recorder = Recorder()
    compare_energy(recorder, run, span, polled(watts))
    energy = recorder.figures[0]
    assert (energy.value, energy.met) == (pytest.approx(4000), kept)
    assert recorder.figures[1].met is True


@pytest.mark.parametrize(
    ("percent", "draw", "missed"),
    [(50, 400, set()), (52, 415, set()), (54, 400, {"utilization"}), (50, 430, {"power"})],
)
def test_nvidia_smi_and_the_sampler_are_compared(tmp_path: Path, percent, draw, missed) -> None:
    run, span = made_run(tmp_path, permille=500, watts=WATTS)
    rows = [{"utilization.gpu": percent, "power.draw": draw, "memory.used": 3545.0,
             "memory.reserved": 551.0}]  # fmt: skip
    lines = [{"sm": percent, "pwr": draw}]
    recorder = Recorder()
    compare(recorder, run, span, rows, lines)
    assert {row.name for row in recorder.figures if row.met is False} == missed
    assert len(recorder.figures) == 5


def test_what_nvidia_smi_does_not_know_is_absent_and_no_agreement(tmp_path: Path) -> None:
    run, span = made_run(tmp_path, permille=500, watts=WATTS)
    recorder, absent = Recorder(), []
    recorder.tell = absent.append  # type: ignore[assignment]
    compare(recorder, run, span, [{"utilization.gpu": None, "power.draw": 400}], [])
    assert [(row.name, row.met) for row in recorder.figures] == [("power", True)]
    assert [row["what"] for row in absent if row["event"] == "absent"] == [
        "utilization, beside nvidia-smi --query-gpu", "utilization, beside nvidia-smi dmon",
        "power, beside nvidia-smi dmon", "memory, beside nvidia-smi",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "share", "beyond", "good"),
    [(93.7, 84.1, 15.0, True), (80.0, 84.1, 15.0, False), (99.9, 70.0, 15.0, False),
     (99.9, 70.0, None, True), (60.0, 70.0, None, False), (40.0, None, None, True),
     (0.0, None, None, False), (None, 84.1, 15.0, False)],
)  # fmt: skip
def test_tensor_cores_are_not_less_active_than_products_say(found, share, beyond, good) -> None:
    recorder = Recorder()
    tell_tensor(recorder, found, share, beyond)
    assert (recorder.misses() == []) == good


def test_memory_of_others_that_changes_is_seen(tmp_path: Path) -> None:
    run, span = made_run(tmp_path, permille=500, watts=WATTS)
    assert restlessness(run, [span]) == 0
    samples = run.samples
    changed = [
        replace(row, gpus=(replace(row.gpus[0], memory_bytes=2**32 + at * 2**20),))
        for at, row in enumerate(samples)
    ]

    class Changed(Run):
        samples = changed  # type: ignore[assignment]

    assert restlessness(Changed(tmp_path), [span]) == 10 * 2**20


class Event:
    """A CUDA event: when it happened, in milliseconds of the GPU's clock."""

    def __init__(self, at_ms: float) -> None:
        self.at_ms = at_ms

    def elapsed_time(self, later: "Event") -> float:
        return later.at_ms - self.at_ms


def test_the_duty_of_a_wave_is_that_of_its_kernels_in_a_stretch_of_time() -> None:
    beats = [
        Beat(at * 50_000, Event(at * 50.0), Event(at * 50.0 + (40 if at < 20 else 12.5)))
        for at in range(100)
    ]
    wave = Wave(Span(0, 5_000_000), beats)
    assert wave.duty(Span(1_000_000, 5_000_000)) == pytest.approx(0.25)
    assert wave.duty(Span(0, 950_000)) == pytest.approx(0.8)
    with pytest.raises(AssertionError, match="only 3 periods"):
        wave.duty(Span(0, 100_000))


class Over(Run):
    """A run that is over: its file is read once."""

    @cached_property
    def records(self) -> list[Record]:
        return super().records


@pytest.mark.long
def test_each_reading_that_a_driver_refuses_is_absent_with_its_reason(start: Start) -> None:
    """GPUs that each refuse one call, in each way: nothing is wrong, nor just unknown."""
    cases = [(code, word) for code in (NOT_SUPPORTED, NO_PERMISSION, TIMEOUT) for word in REFUSED]
    gpus = [busy(at, [(0, 50)], fail=f"{row[0]} 0 1e9 {row[1]}") for at, row in enumerate(cases)]
    running = start(gpus, interval=1.0, slow=0.2)
    running.wait_for(lambda: len(read_folder(running.folder, running.stub).slow) > 2)
    running.stop()
    run = Over(running.folder)
    for at, case in enumerate(cases):
        recorder, absent = Recorder(), set()
        recorder.tell = lambda event, absent=absent: absent.add(event.get("what"))
        tell_fields(recorder, run, at)
        assert recorder.misses() == [], case
        # Power is the energy counter's, and utilization the buffer's, while they are there.
        spare = case[1] in ("power", "utilization", "samples")
        assert (absent <= {None}) == spare, case


@pytest.mark.long
@pytest.mark.parametrize("gpm", [1, 0])
def test_what_a_slice_cannot_have_is_absent_with_its_reason(start: Start, gpm: int) -> None:
    part = busy(0, [(0, 50)])
    part.uuid, part.slice_of, part.words = "MIG-1", uuid(0), {"instance": 1}
    running = start([Gpu(index=0, words={"gpm": gpm}), part], interval=0.5, slow=0.2)
    running.wait_for(lambda: len(read_folder(running.folder, running.stub).slow) > 2)
    running.stop()
    recorder, absent = Recorder(), set()
    recorder.tell = lambda event: absent.add(event.get("what"))  # type: ignore[assignment]
    tell_fields(recorder, Over(running.folder), 0)
    assert recorder.misses() == []
    untold = {"energy_mj", "power_mw"}
    if not gpm:
        untold |= {"utilization_permille", "utilization_source"}
        untold |= {row.name for row in GPU_SAMPLED if row.gpm}
    assert absent - {None} == untold


class Units:
    """What NVML sees: two GPUs, and two slices of a third."""

    def units(self) -> tuple[list[Unit], list[GpuLibraryError]]:
        infos = [GpuInfo(index=at, uuid=uuid(at)) for at in (0, 1)]
        infos += [GpuInfo(index=2, uuid=f"MIG-{at}", mig_parent=uuid(2)) for at in (1, 2)]
        return [Unit(info=info, handle=None, board=None) for info in infos], []


@pytest.mark.parametrize(
    ("words", "found"),
    [({}, uuid(0)), ({"CUDA_VISIBLE_DEVICES": "1"}, uuid(1)),
     ({"CUDA_VISIBLE_DEVICES": uuid(1)}, uuid(1)),
     ({"CUDA_VISIBLE_DEVICES": "MIG-2,MIG-1"}, "MIG-2"),
     ({"CUDA_VISIBLE_DEVICES": "1", "SLURM_GPUS_ON_NODE": "4"}, uuid(1)),
     ({"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "1"}, uuid(1))],
)  # fmt: skip
def test_the_checks_take_the_gpu_that_cuda_takes_first(words, found) -> None:
    assert first_unit(Units(), words).info.uuid == found  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["", "7", "GPU-none", "first", "-1"])
def test_a_gpu_that_is_not_there_is_not_another_one(word: str) -> None:
    said = f"CUDA_VISIBLE_DEVICES is {word!r}, and names none of the 4 that NVML sees"
    with pytest.raises(GpuLibraryError, match=re.escape(said)):
        first_unit(Units(), {"CUDA_VISIBLE_DEVICES": word})  # type: ignore[arg-type]


def test_in_a_job_without_a_gpu_no_gpu_of_another_job_is_taken() -> None:
    with pytest.raises(GpuLibraryError, match="Slurm does not say which this job has"):
        first_unit(Units(), {"SLURM_JOB_ID": "7"})  # type: ignore[arg-type]


def test_a_process_that_nvml_does_not_list_counts_only_where_pids_are_the_hosts() -> None:
    own = os.getpid()
    for here, own_pids, good in (
        ({own: 2**30}, False, True),
        ({own: 2**30}, True, True),
        ({own: None, 999_999: 5}, False, True),
        ({999_999: 2**30}, False, False),
        ({}, False, False),
        ({own: 2**20}, False, False),  # less than torch keeps
    ):
        recorder = Recorder()
        tell_processes(recorder, here, 2**29, own_pids=own_pids)
        assert (recorder.misses() == []) == good, here
    with pytest.raises(NotHere, match="pids of another namespace"):
        tell_processes(Recorder(), {999_999: 2**30}, 2**29, own_pids=True)


def test_namespaces_of_pids_are_told_apart(tmp_path: Path) -> None:
    assert has_own_pids(tmp_path / "no-proc-as-of-gvisor")
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").touch()
    assert has_own_pids(tmp_path)


def test_a_restless_machine_has_no_limit_for_its_loop() -> None:
    for ratio, alone, met in ((0.99, [100, 101], True), (0.9, [100, 101], False),
                              (0.9, [100, 105, 99], None)):  # fmt: skip
        recorder = Recorder()
        tell_loop(recorder, ratio, alone)
        assert recorder.figures[0].met is met
