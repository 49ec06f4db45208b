"""Scripted AMD GPUs through the real amdsmi and a real sampler: what is read is what was played."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpckit.stats.sampler.amd_smi import _is_hidden, known
from hpckit.stats.sampler.job_gpus import Unit, find_mine
from hpckit.stats.samples.records import SHARED, SPOT, GpuInfo
from hpckit.stats.summary.figures import part_word
from tests.conftest import needs
from tests.stats.conftest import Played, Start, read_folder
from tests.stats.exact import Exact, read_log
from tests.stats.stub.script import MI300X, Gpu, Steps, Stub, build_amd_library, busy

needs("amdsmi")
SCALE = 25.0
SECONDS = 2.4
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only library of GPUs of these tests: there is no NVML."""
    return build_amd_library(tmp_path_factory.mktemp("amd"))


def amd(index: int, util: Steps = ((0, 100),), **words: object) -> Gpu:
    made = busy(index, util, **{**MI300X, **words})
    made.uuid = f"GPU-{0x5DC0 + index:04x}00000000abcd"
    return made


def play(start: Start, gpus: Sequence[Gpu], seconds: float = SECONDS, **options: object) -> Played:
    running = start(gpus, scale=SCALE, **options)
    running.play_until(seconds * SCALE)
    running.wait_for_samples(4)
    return running.stop()


def texts(played: Played, code: str) -> list[str]:
    return [note.text for note in played.notes if note.code == code]


@pytest.mark.long
def test_readings_are_what_was_played(start: Start) -> None:
    gpus = [amd(index, [(0, 20.0 + 10 * index)]) for index in range(4)]
    played = play(start, gpus, slow=0.6)
    header = played.header
    assert header.gpu_library == "AMD SMI"
    assert header.driver == "amdgpu 570.86.15"
    assert [gpu.uuid for gpu in header.gpus] == [gpu.uuid for gpu in gpus]
    first = header.gpus[0]
    assert (first.name, first.pci) == ("AMD Instinct MI300X", "0000:18:00.0")
    assert (first.memory_total_bytes, first.power_limit_mw) == (206_141_652_992, 750_000)
    reads = read_log(played.stub.folder / "reads", header.pid)
    for position, gpu in enumerate(gpus):
        exact = Exact(played=played, at=position, gpu=gpu, reads=reads[gpu.uuid])
        mean = played.mean(position, "utilization_permille")
        assert mean == pytest.approx(10 * exact.mean("util", "utilization_permille"), rel=0.01)
        energy = exact.energy()[0] * 1000
        assert played.energy_mj(position) == pytest.approx(energy, rel=1e-3)
        peak = max(sample.memory_bytes or 0 for _, sample in played.gpu(position))
        assert peak == exact.peak("memory", "memory_bytes")


@pytest.mark.long
def test_what_amd_has_no_reading_for_is_unknown_and_never_zero(start: Start) -> None:
    played = play(start, [amd(0, process=(f"{os.getpid()} 1000", "1 2000"))], 1.0, slow=0.3)
    last = played.samples[-1].gpus[0]
    assert (last.sm_permille, last.tensor_permille, last.dram_permille) == (None, None, None)
    slow = played.slow[-1].gpus[0]
    assert (slow.sm_mhz, slow.memory_mhz) == (2100, 1300)
    assert (slow.temperature_c, slow.memory_temperature_c) == (61, 48)
    assert slow.throttle_reasons is None
    assert slow.utilization_source == SPOT
    state = played.states[0].gpus[0]
    assert (state.ecc_corrected, state.ecc_uncorrected, state.remapped_rows) == (4, 1, None)
    assert state.processes == ((1, 2000), (os.getpid(), 1000))
    assert state.confidence == SHARED
    assert texts(played, "not_supported") == []  # it is so of every GPU of AMD's


@pytest.mark.long
def test_an_older_gpu_says_its_mean_power_and_a_board_without_a_counter_has_power(
    start: Start,
) -> None:
    played = play(start, [amd(0, gpm=0, na="energy"), amd(1, na="energy power")], 1.0)
    assert {sample.power_mw for _, sample in played.gpu(0)} == {650_000}
    assert {sample.energy_mj for _, sample in played.gpu(0)} == {None}
    assert {sample.power_mw for _, sample in played.gpu(1)} == {None}
    assert played.mean(1, "utilization_permille") == pytest.approx(1000)


@pytest.mark.long
def test_a_gpu_that_is_gone_is_lost_and_one_that_comes_back_is_read_again(start: Start) -> None:
    gpus = [amd(0), amd(1, lost=20), amd(2, fail="16 20 60")]
    running = start(gpus, scale=SCALE, slow=0.3)
    running.wait_for(lambda: "gpu_back" in read_folder(running.folder, running.stub).codes())
    played = running.stop()
    lost = [note for note in played.notes if note.code == "gpu_lost"]
    assert {note.gpu for note in lost} >= {gpus[1].uuid}
    assert "AMDSMI_STATUS_NOT_FOUND" in next(n.text for n in lost if n.gpu == gpus[1].uuid)
    assert next(n.error for n in lost if n.gpu == gpus[1].uuid) == 31
    assert played.samples[-1].gpus[1].memory_bytes is None
    assert all(sample.memory_bytes for _, sample in played.gpu(0))
    assert gpus[2].uuid in {note.gpu for note in played.notes if note.code == "gpu_back"}
    assert played.samples[-1].gpus[2].memory_bytes


@pytest.mark.long
def test_a_driver_that_hangs_costs_its_gpu_alone(start: Start) -> None:
    running = start([amd(0), amd(1, hang=20)], scale=SCALE)
    running.play_until(20)
    running.wait_for(lambda: "gpu_hang" in read_folder(running.folder, running.stub).codes())
    played = running.stop()
    note = next(note for note in played.notes if note.code == "gpu_hang")
    assert note.gpu == amd(1).uuid
    assert played.samples[-1].gpus[0].memory_bytes


@pytest.mark.long
def test_parts_of_a_gpu_have_no_figures_of_the_whole(start: Start) -> None:
    """MI300X in CPX: what its handles answer is the whole GPU's, or that of another part."""
    whole = amd(0)
    parts = []
    for number in range(3):
        part = amd(0, instance=number)
        part.slice_of = whole.uuid
        parts.append(part)
    played = play(start, [whole, *parts, amd(1)], 1.0, slow=0.3)
    table = played.header.gpus
    ids = [*(f"{whole.uuid}.{number}" for number in range(3)), amd(1).uuid]
    assert [gpu.uuid for gpu in table] == ids
    assert [gpu.index for gpu in table] == [0, 0, 0, 1]
    assert [gpu.mig_parent for gpu in table] == [whole.uuid] * 3 + [None]
    part, other = played.samples[-1].gpus[1], played.samples[-1].gpus[3]
    assert (part.energy_mj, part.power_mw, part.utilization_permille) == (None, None, None)
    assert part.memory_bytes is None
    assert other.memory_bytes
    assert "gpu_lost" not in played.codes()
    assert any("of a part of a GPU" in text for text in texts(played, "not_supported"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("env", "mine", "method"),
    [
        ({"ROCR_VISIBLE_DEVICES": "2,1"}, [2, 1], "rocr_index"),
        ({"ROCR_VISIBLE_DEVICES": "3,1,0", "HIP_VISIBLE_DEVICES": "1"}, [1], "hip_index"),
        ({"ROCR_VISIBLE_DEVICES": amd(2).uuid}, [2], "rocr_uuid"),
        (
            {"SLURM_JOB_ID": "1", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": "1-2"}
            | {"ROCR_VISIBLE_DEVICES": "0,1"},
            [1, 2],
            "slurm_job_gpus",
        ),
    ],
)
def test_which_gpus_are_the_jobs(
    start: Start, env: dict[str, str], mine: list[int], method: str
) -> None:
    running = start([amd(index) for index in range(4)], env=env)
    running.wait_for_samples(1)
    played = running.stop()
    assert [gpu.index for gpu in played.header.gpus] == mine
    assert played.header.gpu_method == method


def unit(index: int) -> Unit:
    return Unit(info=GpuInfo(index=index, uuid=f"GPU-{index}"), handle=index, board=index)


@pytest.mark.parametrize(
    ("env", "mine", "method"),
    [
        ({"HIP_VISIBLE_DEVICES": ""}, [], "hip_none"),
        ({"ROCR_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "0"}, [], "rocr_none"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1], "cuda_index"),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, [0], "hip_index"),
        ({"SLURM_JOB_ID": "1", "SLURM_GPUS_ON_NODE": "3"}, [0, 1, 2], "constrained"),
        ({"SLURM_JOB_ID": "1"}, [], "slurm_none"),
        ({}, [0, 1, 2], "all_visible"),
    ],
)
def test_the_variables_of_rocm(env: dict[str, str], mine: list[int], method: str) -> None:
    found = find_mine([unit(0), unit(1), unit(2)], env, amd=True)
    assert ([row.info.index for row in found.units], found.method) == (mine, method)


def test_a_number_that_is_not_there_is_said() -> None:
    found = find_mine([unit(0)], {"ROCR_VISIBLE_DEVICES": "0,3"}, amd=True)
    assert found.doubt == "ROCR_VISIBLE_DEVICES names GPU 3, but this GPU is not visible here."


@pytest.mark.parametrize("value", ["N/A", 0xFFFF, 0xFFFFFFFF, 2**64 - 1, None])
def test_what_amdsmi_says_for_nothing(value: object) -> None:
    assert known(value) is None
    assert known(0) == 0


@pytest.mark.long
def test_a_gpus_id_is_rocrs_also_where_an_older_library_does_not_say_it(start: Start) -> None:
    running = start([amd(0, na="enumeration"), amd(1, na="enumeration name"), amd(2)])
    running.wait_for_samples(1)
    table = running.stop().header.gpus
    # Without a serial number, too, it is amdsmi's own.
    assert [gpu.uuid for gpu in table] == [amd(0).uuid, f"own-{amd(1).uuid[:20]}", amd(2).uuid]
    assert [gpu.name for gpu in table] == [MI300X["name"], None, MI300X["name"]]


def test_a_gpu_that_a_device_cgroup_refuses_is_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, _flags: int) -> int:
        raise PermissionError(1, "Operation not permitted", path)

    assert not _is_hidden("/dev/null")
    assert not _is_hidden("/dev/dri/renderD9999")
    monkeypatch.setattr(os, "open", refused)
    assert _is_hidden("/dev/dri/renderD128")


def test_a_part_of_a_gpu_is_called_as_its_vendor_calls_it() -> None:
    assert part_word("AMD Instinct MI300X", part=True) == " part"
    assert part_word("NVIDIA H200", part=True) == " MIG"
    assert part_word("AMD Instinct MI300X", part=False) == ""


@pytest.mark.long
def test_a_library_of_another_rocm_is_refused(start: Start) -> None:
    running = start([amd(0)], env={"AMD_STUB_MAJOR": "25"})
    running.wait_for_samples(2)
    played = running.stop()
    assert played.header.gpus == ()
    (text,) = texts(played, "no_nvml")
    assert "amdsmi is of ROCm 7, and libamd_smi.so here is version 25, of another" in text
    assert played.samples[-1].cpu_us


@pytest.mark.long
def test_a_driver_that_is_not_loaded_is_said(start: Start) -> None:
    running = start([amd(0)], env={"NVML_STUB_SCRIPT": "/nowhere"})
    running.wait_for_samples(2)
    (text,) = texts(running.stop(), "no_nvml")
    assert "AMDSMI_STATUS_DRIVER_NOT_LOADED" in text


@pytest.mark.long
def test_rocms_own_amdsmi_is_found_where_none_is_installed(
    start: Start, tmp_path: Path, library: Path
) -> None:
    """ROCm brings the package along that goes with its library."""
    package = importlib.util.find_spec("amdsmi")
    assert package
    rocm = tmp_path / "rocm"
    (rocm / "share" / "amd_smi").mkdir(parents=True)
    (rocm / "lib").mkdir()
    (rocm / "lib" / "libamd_smi.so").symlink_to(library)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (rocm / "share" / "amd_smi" / "amdsmi").symlink_to(Path(str(package.origin)).parent)
    (hidden / "sitecustomize.py").write_text(HIDES)
    env = {"ROCM_PATH": str(rocm), "LD_LIBRARY_PATH": "", "PYTHONPATH": f"{hidden}:{ROOT}"}
    running = start([amd(0)], env=env)
    running.wait_for_samples(1)
    assert running.stop().header.gpu_library == "AMD SMI"
    # Without it: what is missing, and what to install.
    (rocm / "share" / "amd_smi" / "amdsmi").unlink()
    running = start([amd(0)], env=env, folder=tmp_path / "second")
    running.wait_for_samples(1)
    (text,) = texts(running.stop(), "no_nvml")
    assert "libamd_smi.so is here, but the Python package amdsmi is not" in text
    assert " -m pip install 'amdsmi>=6.3'." in text


HIDES = """\
import importlib.machinery, sys
class Hides:
    @staticmethod
    def find_spec(name, path=None, target=None):
        rocm = [p for p in sys.path if p.endswith("share/amd_smi")]
        if name == "amdsmi":
            found = importlib.machinery.PathFinder.find_spec(name, rocm)
            if found is None:
                raise ModuleNotFoundError("No module named 'amdsmi'")
            return found
sys.meta_path.insert(0, Hides)
"""


@pytest.mark.long
def test_doctor_says_by_what_a_gpu_was_seen(stub: Stub, tmp_path: Path) -> None:
    script = ROOT / "hpckit" / "doctor" / "jobs" / "gpu_hello.py"
    hidden = tmp_path / "torchless"
    hidden.mkdir()
    (hidden / "torch.py").write_text("raise ImportError('none here')\n")
    env = stub.environment([amd(0), amd(1)]) | {"LOCAL_RANK": "1"}
    env["PYTHONPATH"] = f"{hidden}:{ROOT}"
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"by": "AMD SMI", "name": "AMD Instinct MI300X"' in done.stdout
