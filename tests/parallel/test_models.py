"""Models: their sizes, what each sample depends on, and that each learns from real data."""

import copy
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.patience import LONG_S

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("mlxtend")

from torch.nn.functional import cross_entropy, mse_loss  # noqa: E402

from hpckit.parallel.data import RandomDataset, Samples, byte_corpus, load_images  # noqa: E402
from hpckit.parallel.errors import SetupError  # noqa: E402
from hpckit.parallel.mirrored import MirroredStrategy  # noqa: E402
from hpckit.parallel.models import GPT, IMAGE_MODELS, MODELS, LeNet, make_model  # noqa: E402

pytestmark = pytest.mark.torch
SMALL = {"layers": 2, "width": 32, "heads": 4, "context": 16}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def as_in_textbooks(name: str) -> torch.nn.Module:
    """Return the same network as its paper draws it: ReLU first, then pooling, then rows."""
    nn = torch.nn
    if name == "cnn":
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)),
            *(nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10)),
        )
    return nn.Sequential(
        *(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


@pytest.mark.parametrize("samples", [9, 1, 0])
@pytest.mark.parametrize(("name", "options"), [("cnn", {}), ("lenet", {"spread": None})])
def test_numbers_and_gradients_are_the_textbooks(
    name: str, options: dict[str, object], samples: int
) -> None:
    model = make_model(name, **options)
    plain = as_in_textbooks(name).to(memory_format=torch.channels_last)
    plain.load_state_dict(
        dict(zip(plain.state_dict(), copy.deepcopy(model.state_dict()).values(), strict=True))
    )
    torch.manual_seed(1)
    # Black images, too: their scores before ReLU are all equal, and 0.
    images = torch.cat([torch.rand(samples, 1, 28, 28), torch.zeros(min(samples, 2), 1, 28, 28)])
    for one in (model, plain):
        images.grad = None
        images.requires_grad_()
        one(images).square().sum().backward()
        one.found = images.grad.clone()  # type: ignore[union-attr]
    assert torch.equal(model(images), plain(images))
    assert torch.equal(model.found, plain.found)
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(mine.grad, its.grad) for mine, its in pairs)


@pytest.mark.parametrize("name", ["cnn", "lenet"])
def test_gradients_of_each_sample_by_vmap(name: str) -> None:
    model, images = make_model(name), torch.rand(3, 1, 28, 28)
    weights = dict(model.named_parameters())

    def score(weights: dict[str, torch.Tensor], image: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (image[None],)).square().sum()

    each = torch.func.vmap(torch.func.grad(score), in_dims=(None, 0))(weights, images)
    model(images).square().sum().backward()
    for key, parameter in weights.items():
        assert torch.allclose(each[key].sum(0), parameter.grad, rtol=1e-4, atol=1e-6)


def size(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("lenet", 20 * 9 + 20 + 50 * 20 * 25 + 50 + 800 * 128 + 128 + 1280 + 10),
        ("mlp", 784 * 128 + 128 + 1280 + 10),
        ("resnet18", 11_175_818),
        ("gpt", 85_842_432),
        ("gpt-small", 141_056),
        ("linear", 30 + 30 + 6),
    ],
)
def test_how_many_parameters(name: str, count: int) -> None:
    with torch.device("meta"):  # make_model would draw 86 million numbers
        assert size(MODELS[name]()) == count


def test_a_tied_head_saves_the_vocabulary() -> None:
    own, tied = GPT(**SMALL), GPT(**SMALL, tied=True)
    assert size(own) - size(tied) == 256 * 32
    assert tied.head.weight is tied.tokens.weight
    assert copy.deepcopy(tied).head.weight.data_ptr() != tied.head.weight.data_ptr()
    tied(torch.zeros(1, 2, dtype=torch.int64)).sum().backward()
    assert tied.tokens.weight.grad.count_nonzero() == 256 * 32, "rows of other tokens, too"


@pytest.mark.parametrize("name", IMAGE_MODELS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 14, 21), (1, 8, 8), (3, 1, 2)])
def test_images_of_any_size(name: str, shape: tuple[int, int, int]) -> None:
    if name == "lenet" and min(shape[1:]) < 14:
        wanted = f"at least 14x14 pixels, not {shape[1]}x{shape[2]}: take another"
        with pytest.raises(SetupError, match=wanted):
            make_model(name, shape=shape)
        return
    scores = make_model(name, shape=shape, classes=7)(torch.rand(2, *shape))
    assert scores.shape == (2, 7)


def test_lenet_starts_as_the_classic_does() -> None:
    first = LeNet().head[0]
    assert first.weight.shape == (128, 800)
    for name, parameter in LeNet().named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        else:
            assert parameter.std().item() == pytest.approx(0.01, rel=0.2)
    assert LeNet(spread=None).head[0].weight.std().item() == pytest.approx(0.05, rel=0.1)


def test_lenet_computes_what_the_notebook_does() -> None:
    from torch.nn import functional

    model = make_model("lenet", spread=None)
    w1, b1, w2, b2, w3, b3, w4, b4 = model.parameters()
    images = torch.rand(3, 1, 28, 28)
    hidden = functional.avg_pool2d(functional.relu(functional.conv2d(images, w1, b1)), 2, 2)
    hidden = functional.avg_pool2d(functional.relu(functional.conv2d(hidden, w2, b2)), 2, 2)
    hidden = functional.relu(hidden.reshape(3, -1) @ w3.T + b3)
    torch.testing.assert_close(model(images), hidden @ w4.T + b4)


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed))


def test_a_token_never_sees_later_ones() -> None:
    model, text = GPT(**SMALL), tokens(2, 16)
    with torch.no_grad():
        before = model(text)
        for place in range(1, 16):
            changed = text.clone()
            changed[:, place:] = (changed[:, place:] + 1) % 256
            after = model(changed)
            torch.testing.assert_close(after[:, :place], before[:, :place])
            assert (after[:, place] - before[:, place]).abs().min() > 0


def test_a_token_sees_all_earlier_ones() -> None:
    model, text = GPT(**SMALL), tokens(1, 16)
    for place in range(15):
        changed = text.clone()
        changed[:, place] = (changed[:, place] + 1) % 256
        with torch.no_grad():
            assert (model(changed) - model(text))[0, -1].abs().max() > 1e-5, place


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gpt"])
def test_a_sample_does_not_depend_on_its_neighbors(name: str) -> None:
    model = make_model(name).eval()
    batch, others = sample(name, seed=0), sample(name, seed=1)
    mixed = torch.cat([batch[:1], others[1:]])
    with torch.no_grad():
        torch.testing.assert_close(model(mixed)[0], model(batch)[0])
        torch.testing.assert_close(model(batch[:1])[0], model(batch)[0])
        assert not torch.equal(model(mixed)[1], model(batch)[1])


def sample(name: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if name.startswith("gpt"):
        return tokens(3, 16, seed=seed)
    shape = (3, 5) if name == "linear" else (3, 1, 28, 28)
    return torch.rand(shape, generator=generator)


def test_attention_is_what_the_formula_says() -> None:
    attention, x = GPT(**SMALL).layers[0].attention, torch.randn(2, 5, 32)
    query, key, value = attention.look(x).split(32, dim=2)
    seen = []
    for head in range(4):
        part = slice(head * 8, head * 8 + 8)
        weights = query[..., part] @ key[..., part].transpose(1, 2) / 8**0.5
        weights = weights.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
        seen.append(weights.softmax(-1) @ value[..., part])
    torch.testing.assert_close(attention(x), attention.out(torch.cat(seen, dim=2)))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gpt"])
@pytest.mark.parametrize("count", [0, 1])
def test_a_replica_with_no_sample_or_one(name: str, count: int) -> None:
    model, batch = make_model(name), sample(name, 0)[:count]
    model(batch).sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert count or not parameter.grad.any()
    assert all(value.isfinite().all() for value in model.state_dict().values())


def test_one_small_image_cannot_be_normalized() -> None:
    model, image = make_model("resnet18", shape=(1, 8, 8)), torch.rand(1, 1, 8, 8)
    with pytest.raises(SetupError, match="cannot train on one image of 8x8 alone: give each repl"):
        model(image)
    assert model.eval()(image).shape == (1, 10)
    assert model.train()(torch.rand(1, 1, 9, 9)).shape == (1, 10)


def test_a_new_gpt_guesses_evenly() -> None:
    text = tokens(2, 129)
    scores = make_model("gpt-small")(text[:, :-1])
    assert scores.shape == (2, 128, 256)
    loss = cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten()).item()
    assert loss == pytest.approx(math.log(256), abs=0.1)


def test_wrong_sizes_and_names() -> None:
    with pytest.raises(ValueError, match=r"Samples of 17 tokens do not fit .* context=17"):
        GPT(**SMALL)(tokens(1, 17))
    with pytest.raises(SetupError, match="width of 32 cannot be divided into 5 heads"):
        GPT(**SMALL | {"heads": 5})
    with pytest.raises(
        SetupError,
        match=r"--model vgg: there is no such model: give .*lenet, mlp, resnet18, gpt, gpt-small",
    ):
        make_model("vgg")


@pytest.mark.parametrize("name", ["lenet", "mlp", "gpt-small", "linear"])
def test_a_seed_gives_the_same_weights_whatever_is_drawn_before(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    # A GPU's generator would be set for good.
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _: pytest.fail("GPUs are seeded"))
    model = make_model(name, seed=3)
    assert torch.equal(torch.get_rng_state(), state), "the program's own numbers go on"
    with torch.device("meta"):  # as programs have that make everything on a GPU
        again = make_model(name, seed=3)
    for mine, same in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, same)
    other = make_model(name, seed=4)
    assert any(
        not torch.equal(mine, its)
        for mine, its in zip(model.parameters(), other.parameters(), strict=True)
    )


def image_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(scores, labels)


def text_loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(scores.flatten(0, 1), targets.flatten())


Learning = tuple[str, dict[str, object], Callable[[], tuple[Samples, Samples]], object, float]


def images(name: str, limit: int) -> Callable[[], tuple[Samples, Samples]]:
    def load() -> tuple[Samples, Samples]:
        sets = load_images(name, limit=limit)
        return sets.train, sets.held_out

    return load


def text() -> tuple[Samples, Samples]:
    sets = byte_corpus(limit=300)
    return sets.train, sets.held_out


def points() -> tuple[Samples, Samples]:
    return RandomDataset(2000), RandomDataset(500, seed=1)


LEARNING: list[Learning] = [
    ("lenet", {}, images("mnist-5k", 1000), image_loss, 0.5),
    ("mlp", {}, images("mnist-5k", 1000), image_loss, 0.3),
    ("resnet18", {"shape": (1, 8, 8)}, images("digits", 320), image_loss, 0.7),
    ("gpt-small", {}, text, text_loss, 0.7),
    ("linear", {}, points, mse_loss, 0.7),
]


@pytest.mark.parametrize(
    ("name", "options", "load", "loss", "most"), LEARNING, ids=[row[0] for row in LEARNING]
)
def test_each_learns_what_was_held_out(
    name: str,
    options: dict[str, object],
    load: Callable[[], tuple[Samples, Samples]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    most: float,
) -> None:
    train, held_out = load()
    model = make_model(name, **options)
    adam, sgd = torch.optim.Adam, torch.optim.SGD
    # Adam would spend most of the test on its sums for 11 million parameters.
    make, lr = (sgd, 0.02) if name == "resnet18" else (adam, 0.005)
    optimizer = make(model.parameters(), lr=lr)

    def tested() -> float:
        model.eval()
        with torch.no_grad():
            inputs, targets = held_out[:200]
            return float(loss(model(inputs), targets))

    before = tested()
    for number in range(2):
        model.train()
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(number))
        for batch in order.split(16):
            inputs, targets = train[batch]
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            optimizer.step()
    for part, parameter in model.named_parameters():
        if not (name == "resnet18" and part.endswith("0.bias")):  # BatchNorm takes it away again
            assert parameter.grad.abs().max() > 0, part
    assert tested() < most * before


def test_a_verbose_model_tells_where_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    model = make_model("linear")
    model(torch.ones(4, 5))
    assert capsys.readouterr().out == ""
    model.verbose = True
    model(torch.ones(4, 5))
    model.replica = 3
    model(torch.ones(1, 5))
    assert capsys.readouterr().out == (
        "replica 0 on cpu: input (4, 5)\nreplica 3 on cpu: input (1, 5)\n"
    )


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gpt"])
def test_each_model_can_be_verbose(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    batch = sample(name, 0)
    make_model(name, verbose=True)(batch)
    assert capsys.readouterr().out == f"replica 0 on cpu: input {tuple(batch.shape)}\n"


def test_replicas_of_a_strategy_have_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    strategy = MirroredStrategy("cpu:3")
    model = strategy.mirror(make_model("linear", verbose=True))
    strategy.run(lambda: model(torch.ones(2, 5)))
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f"replica {number} on cpu: input (2, 5)" for number in range(3)
    ]


def test_lines_of_threads_never_mix(capfd: pytest.CaptureFixture[str]) -> None:
    model = make_model("linear", verbose=True)
    threads = [
        threading.Thread(target=lambda: [model(torch.ones(2, 5)) for _ in range(100)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = capfd.readouterr().out.splitlines()
    assert lines == ["replica 0 on cpu: input (2, 5)"] * 800


RANK = """
import sys, torch, torch.distributed as dist
from hpckit.parallel.models import make_model
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
model = make_model("linear", verbose=True)
for _ in range(200):
    model(torch.ones(2, 5))
dist.destroy_process_group()
"""


def test_lines_of_ranks_never_mix(tmp_path: object) -> None:
    meeting = f"{tmp_path}/meeting"
    command = (
        f"for rank in 0 1; do {sys.executable} -W error -c \"$0\" $rank '{meeting}' & done; wait"
    )
    done = subprocess.run(
        ["bash", "-c", command, RANK],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=True,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 400
    assert all(re.fullmatch(r"replica [01] on cpu: input \(2, 5\)", line) for line in lines)
    assert lines.count("replica 1 on cpu: input (2, 5)") == 200
