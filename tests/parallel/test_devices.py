import re

import pytest
import torch

from hpckit.parallel.devices import device_of_rank, find_replicas
from hpckit.parallel.errors import SetupError
from hpckit.parallel.mirrored import MirroredStrategy
from hpckit.parallel.mpi import Ranks

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPCKIT_DEVICE", raising=False)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve GPUs, as far as words go: `cuda:1` and `cuda:10` are both there."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 12)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")


def names(spec: object, **options: str) -> list[str]:
    found = find_replicas(spec, **options)  # type: ignore[arg-type]
    assert [replica.number for replica in found] == list(range(len(found)))
    return [str(replica.device) for replica in found]


ALL = [f"cuda:{index}" for index in range(12)]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (None, ["cuda:0"]),
        ("cuda", ["cuda:0"]),
        ("cuda:0", ["cuda:0"]),
        ("CUDA:3", ["cuda:3"]),
        ("GPU:1", ["cuda:1"]),
        ("gpu:11", ["cuda:11"]),
        ("GPU:*", ALL),
        ("GPU", ALL),
        ("GPU:[0-3]", ALL[:4]),
        ("GPU:[!0-3]", ALL[4:10]),
        ("GPU:?", ALL[:10]),
        ("GPU:1*", ["cuda:1", "cuda:10", "cuda:11"]),
        (["GPU:2", "GPU:0"], ["cuda:2", "cuda:0"]),
        (["GPU:1", "cuda:1", "GPU:[01]"], ["cuda:1", "cuda:0"]),
        (["GPU:2", "GPU:*"], ["cuda:2", *ALL[:2], *ALL[3:]]),
        (torch.device("cuda", 5), ["cuda:5"]),
        ([torch.device("cuda", 5), "cpu"], ["cuda:5", "cpu"]),
        ("cpu", ["cpu"]),
        (["cpu", "cpu"], ["cpu"]),
        ("cpu:4", ["cpu"] * 4),
        ("cuda:0 x 2", ["cuda:0"] * 2),
        ("GPU:[01]x2", ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]),
        # Regular expressions of the whole name.
        (r"GPU:\d", ALL[:10]),
        (r"gpu:\d+", ALL),
        (r"GPU:[^\D1]", [ALL[0], *ALL[2:10]]),
        ("GPU:1|GPU:2", ["cuda:1", "cuda:2"]),
        ("GPU:2|cuda:*", ["cuda:2", *ALL[:2], *ALL[3:]]),
        ("GPU:(0|11)", ["cuda:0", "cuda:11"]),
        (["cuda:3", r"GPU:1\d"], ["cuda:3", "cuda:10", "cuda:11"]),
        (r"GPU:\D?1 x 2", ["cuda:1"] * 2),
        (re.compile("gpu:[12]"), ["cuda:1", "cuda:2"]),
        (re.compile("GPU:1"), ["cuda:1"]),
        ([re.compile("cuda:4"), "cpu"], ["cuda:4", "cpu"]),
        (re.compile(".*"), ALL),
        (re.compile("CPU:0"), ["cpu"]),
        # TensorFlow's names.
        ("/gpu:1", ["cuda:1"]),
        (["/gpu:0", "/device:GPU:1", "GPU:0"], ["cuda:0", "cuda:1"]),
        ("/job:localhost/replica:0/task:0/device:GPU:3", ["cuda:3"]),
        ("/device:GPU:*", ALL),
        ("CPU:0", ["cpu"]),
        ("/cpu:3", ["cpu"]),
        (["CPU:0", "CPU:1", "CPU:2"], ["cpu"] * 3),
        (["/cpu:0", "/cpu:1"], ["cpu"] * 2),
        (["/cpu:2", "/cpu:4", "/cpu:2"], ["cpu"] * 2),
        (["cpu", "cpu:0"], ["cpu"]),
        (["cpu:1", "cpu:2"], ["cpu"] * 3),
        # Torch's own devices are one each, whatever their number.
        (torch.device("cpu", 3), ["cpu"]),
        (torch.device("cpu", 0), ["cpu"]),
        ([torch.device("cpu", 0), torch.device("cpu")], ["cpu"]),
    ],
)
def test_words_to_devices(gpus: None, spec: object, wanted: list[str]) -> None:
    assert names(spec) == wanted


def test_none_without_a_gpu_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not torch.cuda.is_available()
    assert names(None) == names(None, default="all") == ["cpu"]
    # In a job that asked for three GPUs, on a machine that has none.
    monkeypatch.setenv("HPCKIT_CPU_REPLICAS", "3")
    assert names(None) == ["cpu"]
    assert names(None, default="all") == ["cpu"] * 3
    for wrong in ("0", "two"):
        monkeypatch.setenv("HPCKIT_CPU_REPLICAS", wrong)
        with pytest.raises(ValueError, match=f"HPCKIT_CPU_REPLICAS.*{wrong}"):
            names(None, default="all")


def test_all_by_default(gpus: None) -> None:
    assert names(None, default="all") == ALL


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("GPU:12", ["'GPU:12'", "cuda:0 (NVIDIA H200)", "cuda:11"]),
        ("GPU:[x]", ["'GPU:[x]'", "is not a device"]),
        ("GPU:1|2", ["'2' is not a device"]),
        ("GPU:(1", ["'GPU:(1' is not a device", "regular expression: missing )"]),
        (3, ["3 is not a device", "cuda:3", "cpu:3"]),
        (["cuda:0", 1], ["1 is not a device", "cuda:1", "cpu:1"]),
        (r"GPU:2\d", ["No device matches", "2\\\\d"]),
        (re.compile("TPU:0"), ["No device matches 'TPU:0'", "cuda:11"]),
        ("/tpu:0", ["'/tpu:0' is not a device"]),
        ("/cpu:400", ["'/cpu:400' names logical CPU 400"]),
        (torch.device("meta"), ["'meta' is not a device"]),
        ("tpu:0", ["'tpu:0'", "is not a device", "Available:"]),
        ("", ["is not a device"]),
        ("cpu x 0", ["asks for 0 replicas"]),
        ("cpu:99999", ["asks for 99999 replicas"]),
        ("cuda:0 x 0", ["asks for 0 replicas"]),
        ([], ["No device is named"]),
        (["cpu", "GPU:40"], ["'GPU:40'"]),
        (["cpu:1000", "cpu:1000"], ["2000 replicas"]),
    ],
)
def test_what_is_wrong_is_named_with_what_there_is(
    gpus: None, spec: object, words: list[str]
) -> None:
    with pytest.raises(ValueError) as error:
        names(spec)
    for word in words:
        assert word in str(error.value)


def test_without_gpus_it_says_so() -> None:
    with pytest.raises(ValueError, match="this machine has no GPU that torch can use"):
        names("GPU:0")


def test_a_default_that_is_none() -> None:
    with pytest.raises(ValueError, match="must be 'first' or 'all'"):
        names(None, default="some")


@pytest.mark.parametrize(
    ("word", "variable", "wanted"),
    [
        (None, None, "cuda:1"),
        (None, "cuda", "cuda:1"),
        (None, "cpu", "cpu"),
        ("cpu", "cuda", "cpu"),
        ("cpu:4", None, "cpu"),
        ("/cpu:1", None, "cpu"),
        ("/gpu:3", None, "cuda:3"),
        ("cuda", None, "cuda:0"),
        ("GPU:[01]", None, "cuda:1"),
        ("GPU:*", None, "cuda:1"),
    ],
)
@pytest.mark.usefixtures("gpus")
def test_a_rank_has_one_device(
    word: str | None, variable: str | None, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("HPCKIT_DEVICE", variable)
    assert str(device_of_rank(13, word)) == wanted


def test_a_rank_without_a_gpu_has_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_of_rank(3) == torch.device("cpu")
    monkeypatch.setenv("HPCKIT_DEVICE", "cuda")
    with pytest.raises(SetupError, match="torch sees no GPU"):
        device_of_rank(0)
    assert device_of_rank(0, "cpu") == torch.device("cpu")


@pytest.mark.parametrize(("kind", "all_of_them"), [("cpu", ["cpu"] * 3), ("cuda", None)])
@pytest.mark.usefixtures("gpus")
def test_a_jobs_kind_of_device_is_what_no_word_means(
    kind: str, all_of_them: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCKIT_DEVICE", kind)
    monkeypatch.setenv("HPCKIT_CPU_REPLICAS", "3")
    found = [str(replica.device) for replica in find_replicas(default="all")]
    assert found == (all_of_them or [f"cuda:{index}" for index in range(12)])
    assert [row.device.type for row in find_replicas()] == [kind]
    assert [row.device.type for row in find_replicas("GPU:0")] == ["cuda"]  # a word means itself


def test_no_job_trains_on_cpus_beside_gpus_that_torch_does_not_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a CPU build of torch on a node with GPUs."""
    monkeypatch.setenv("HPCKIT_DEVICE", "cuda")
    for default in ("first", "all"):
        with pytest.raises(SetupError, match="HPCKIT_DEVICE is cuda but torch sees no GPU"):
            find_replicas(default=default)
    with pytest.raises(SetupError, match="torch sees no GPU"):
        MirroredStrategy()
    assert len(find_replicas("cpu:4")) == 4


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), "cuda:1"),
        (("cuda:7",), "cuda:7"),
        (("GPU:*",), "cuda:1"),
        (("cuda:4", "cuda:5"), "cuda:5"),  # one for each rank of a host
        (("cuda:4", "cuda:5", "cuda:6", "cuda:9"), "cuda:9"),  # one for each rank
    ],
)
@pytest.mark.usefixtures("gpus")
def test_words_for_all_ranks(words: tuple[str, ...], wanted: str) -> None:
    ranks = Ranks(rank=3, size=4, local_rank=1, local_size=2)
    assert str(ranks.choose_device(words)) == wanted
