"""VI in one process: what it converges to, what it refuses, and what it keeps."""

import inspect
import math
from pathlib import Path

import pytest

pytest.importorskip("torch")

import numpy
import torch

from hpckit.inference import noise
from hpckit.inference.gaussian import TrainableGaussian
from hpckit.inference.progress import RunFiles
from hpckit.inference.vi import VI
from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks

pytestmark = [
    pytest.mark.torch,
    # torch itself calls it when forward mode is used first
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]
PRIOR = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
# Loss k/2 |theta - a|^2 and a standard normal prior: the best Gaussian has variance 1 / (k/w + 1)
# and mean a (k/w) / (k/w + 1).
A, K, W = torch.tensor([1.0, -2.0]), 3.0, 1.5
VARIANCE = 1 / (K / W + 1)
MEAN = A * (K / W) * VARIANCE


class Quadratic:
    """A loss of batches; with noise of the kind that a simulator draws."""

    batched = True

    def __init__(self, noisy: float = 0.0) -> None:
        self.noisy = noisy

    def __call__(self, params, data):
        noise_ = self.noisy * noise.normal((2,), samples=params.numel() // 2).reshape(params.shape)
        return K / 2 * (params - data + noise_).square().sum(-1)


def black_box(params, data):
    """One sample at a time, and nothing that torch can differentiate."""
    difference = params.numpy() - data.numpy()
    return float(K / 2 * (difference**2).sum())


def make(loss=None, out: Path | None = None, estimator=None, lr: float = 0.05, **options) -> VI:
    torch.manual_seed(0)
    estimator = estimator or TrainableGaussian(torch.zeros(2))
    options = {"w": W, "n_samples_per_epoch": 32, "n_samples_regularisation": 128} | options
    return VI(
        loss or Quadratic(),
        PRIOR,
        estimator,
        optimizer=torch.optim.Adam(estimator.parameters(), lr=lr),
        progress_bar=False,
        ranks=Ranks(),
        out=out,
        **options,
    )


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (Quadratic(noisy=0.1), {}),
        (Quadratic(), {"diff_mode": "forward"}),
        (Quadratic(), {"gradient_estimation_method": "score", "n_samples_per_epoch": 200}),
        (black_box, {"gradient_estimation_method": "score"}),
    ],
    ids=["pathwise", "forward", "score", "black box"],
)
def test_it_finds_the_posterior_that_is_known(loss, options) -> None:
    vi = make(loss, lr=0.1, **options)
    vi.run(A, 60, math.inf)
    for group in vi.optimizer.param_groups:
        group["lr"] = 0.01
    vi.run(A, 110, math.inf)
    found = vi.posterior_estimator
    assert found.mu.tolist() == pytest.approx(MEAN.tolist(), abs=0.1)
    assert found.covariance.diagonal().tolist() == pytest.approx([VARIANCE] * 2, rel=0.2)
    # E_q[loss] + w KL there, in closed form
    mean_loss = K / 2 * ((MEAN - A).square().sum().item() + 2 * VARIANCE)
    divergence = 0.5 * (2 * VARIANCE + MEAN.square().sum().item() - 2 - 2 * math.log(VARIANCE))
    ends = vi.losses_hist["total"][-50:]
    assert sum(ends) / 50 == pytest.approx(mean_loss + W * divergence, rel=0.1)


def gradient(method: str, samples: int, *, baseline: bool = True, seed: int = 0):
    vi = make(
        w=0.0,
        n_samples_per_epoch=samples,
        gradient_estimation_method=method,
        baseline=baseline,
        seed=seed,
    )
    vi.objective.differentiate(A, 0, stop=False)
    return torch.cat([row.grad.reshape(-1) for row in vi.objective.parameters])


def test_the_score_gradient_has_the_pathwise_ones_expectation() -> None:
    pathwise, score = gradient("pathwise", 50_000), gradient("score", 50_000)
    assert score.tolist() == pytest.approx(pathwise.tolist(), abs=0.15)
    assert pathwise[:2].tolist() == pytest.approx((-K * A).tolist(), abs=0.05)


def test_the_baseline_lowers_the_scores_variance() -> None:
    spread = {
        baseline: torch.stack(
            [gradient("score", 50, baseline=baseline, seed=seed) for seed in range(20)]
        ).var(0)
        for baseline in (True, False)
    }
    assert (spread[True] < 0.7 * spread[False])[:2].all()


@pytest.mark.parametrize("options", [{"samples_per_call": 1}, {"samples_per_call": 5}])
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_samples_at_once_or_one_by_one_are_the_same(options, mode: str) -> None:
    whole, cut = (
        make(Quadratic(noisy=1.0), diff_mode=mode, n_samples_per_epoch=12, **row)
        for row in ({}, options)
    )
    assert whole.run(A, 5).losses == cut.run(A, 5).losses


def test_directions_in_chunks_are_the_same() -> None:
    whole, cut = (
        make(Quadratic(noisy=1.0), diff_mode="forward", jacobian_chunk_size=size)
        for size in (None, 1)
    )
    assert whole.run(A, 3).losses == cut.run(A, 3).losses


def test_global_generators_are_seeded_for_each_sample_and_left_as_they_were() -> None:
    def loss(params, data):
        return (params - data).square().sum() + numpy.random.rand() + torch.rand(())

    before = numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    first = make(loss, n_samples_per_epoch=3)
    first.run(A, 3)
    assert make(loss, n_samples_per_epoch=3).run(A, 3).losses == first.losses_hist
    torch.manual_seed(0)  # as `make` did, after which nothing may have been drawn
    assert numpy.random.get_state()[1].tolist() == before[0]
    assert make(loss, n_samples_per_epoch=3, seed=1).run(A, 3).losses != first.losses_hist


def test_samples_that_are_no_numbers_are_dropped_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def loss(params, data):
        return torch.where(params[0] > 0, torch.nan, (params - data).square().sum())

    vi = make(loss, n_samples_per_epoch=20)
    vi.progress_bar = True
    history = vi.run(A, 2)
    assert 0 < history.dropped < 40
    assert all(map(math.isfinite, history.losses["loss"]))
    assert "dropped" in capsys.readouterr().out


def test_when_no_sample_is_a_number_that_is_the_error() -> None:
    vi = make(lambda params, data: (params - data).sum() * torch.nan)
    with pytest.raises(SetupError, match=r"none of the 32 samples of epoch 1 gave a number"):
        vi.run(A, 2)


def test_it_stops_when_nothing_improves(tmp_path: Path) -> None:
    vi = make(lambda params, data: (params - data).square().sum(), tmp_path, lr=0.0)
    history = vi.run(A, 1000, 4)
    assert history.since_best == 4
    assert history.epochs < 1000
    assert vi.best_loss == min(history.losses["total"])
    assert (tmp_path / "checkpoints" / "last.pt").exists()


def test_a_fit_that_gave_up_stays_as_it_is_when_it_goes_on(tmp_path: Path) -> None:
    def fit(resume: bool) -> VI:
        made = make(lambda params, data: (params - data).square().sum(), tmp_path, resume=resume)
        made.run(A, 1000, 4)
        return made

    ended, resumed = fit(resume=False), fit(resume=True)
    assert resumed.losses_hist == ended.losses_hist
    longer = make(
        lambda params, data: (params - data).square().sum(), tmp_path, lr=0.0, resume=True
    )
    assert longer.run(A, 1000, 6).epochs > ended.history.epochs


def test_it_stops_when_asked() -> None:
    asked = iter([False, False, True])
    vi = make(should_stop=lambda: next(asked))
    assert vi.run(A, 1000).epochs == 3


def test_the_best_weights_are_those_whose_loss_was_best(tmp_path: Path) -> None:
    seen = []

    def loss(params, data):
        seen.append(vi.posterior_estimator.mu.detach().clone())
        return torch.tensor(float(len(seen) != 3)) + 0 * params.sum()

    vi = make(loss, tmp_path, w=0.0, lr=0.1, n_samples_per_epoch=1)
    vi.run(A, 5)
    assert vi.best_loss == 0.0
    assert torch.equal(vi.best_estimator_state_dict["mu"], seen[2])
    kept = torch.load(tmp_path / "best_estimator.pt", weights_only=True)
    assert torch.equal(kept["mu"], seen[2])
    last = torch.load(tmp_path / "last_estimator.pt", weights_only=True)
    assert torch.equal(last["mu"], vi.posterior_estimator.mu)
    torch.testing.assert_close(vi.sample_posterior(4000)[0].mean(0), seen[2], atol=0.1, rtol=0)


def test_a_fit_that_goes_on_is_the_fit_that_never_stopped(tmp_path: Path) -> None:
    whole = make(Quadratic(noisy=1.0))
    whole.run(A, 8, math.inf)
    make(Quadratic(noisy=1.0), tmp_path).run(A, 5, math.inf)
    resumed = make(Quadratic(noisy=1.0), tmp_path, resume=True)
    resumed.run(A, 8, math.inf)
    assert resumed.losses_hist == whole.losses_hist
    assert resumed.best_loss == whole.best_loss
    assert torch.equal(resumed.posterior_estimator.mu, whole.posterior_estimator.mu)


def test_another_fits_checkpoint_is_refused(tmp_path: Path) -> None:
    make(out=tmp_path).run(A, 1)
    with pytest.raises(SetupError, match=r"made with w 1.5, not 2.0"):
        make(out=tmp_path, resume=True, w=2.0).run(A, 2)
    estimator = TrainableGaussian(torch.zeros(3))
    with pytest.raises(SetupError, match="of another estimator"):
        make(out=tmp_path, resume=True, estimator=estimator).run(A, 2)
    other = make(out=tmp_path, resume=True)
    other.optimizer = torch.optim.SGD(other.posterior_estimator.parameters(), lr=0.1)
    with pytest.raises(SetupError, match="made with the optimizer Adam, not SGD"):
        other.run(A, 2)
    other.optimizer = torch.optim.Adam([next(other.posterior_estimator.parameters())], lr=0.1)
    with pytest.raises(SetupError, match="made with an optimizer of other weights"):
        other.run(A, 2)


def test_nothing_is_written_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HPCKIT_RUN_DIR", raising=False)
    make().run(A, 2)
    assert list(tmp_path.iterdir()) == []


def test_events_have_blackbirds_names(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    vi = make(
        log_tensorboard=True, tensorboard_log_dir=str(tmp_path), initialize_estimator_to_prior=True
    )
    vi.run(A, 3)
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    names = ["Loss/init_loss", "Loss/loss", "Loss/regularisation", "Loss/total"]
    assert sorted(events.Tags()["scalars"]) == names
    assert [row.step for row in events.Scalars("Loss/total")] == [0, 1, 2]
    assert events.Scalars("Loss/loss")[1].value == pytest.approx(vi.losses_hist["loss"][1])


def test_the_estimator_can_begin_as_the_prior(tmp_path: Path) -> None:
    estimator = TrainableGaussian(torch.tensor([1.0, -1.0]), 2.0)
    options = {"initialization_lr": 0.05, "n_samples_regularisation": 1000}
    vi = make(out=tmp_path, estimator=estimator, initialize_estimator_to_prior=True, **options)
    vi.run(A, 0)
    # It ends once 1000 draws estimate the divergence as less than 0.01.
    assert estimator.mu.tolist() == pytest.approx([0, 0], abs=0.25)
    assert estimator.covariance.diagonal().tolist() == pytest.approx([1, 1], abs=0.4)
    kept = torch.load(tmp_path / "estimator_fit_to_prior.pt", weights_only=True)
    assert torch.equal(kept["mu"], estimator.mu)


def test_clipping_bounds_the_gradient() -> None:
    vi = make(gradient_clipping_norm=0.01, lr=1.0)
    vi.step(A)
    norm = torch.cat([row.grad.reshape(-1) for row in vi.objective.parameters]).norm()
    assert float(norm) == pytest.approx(0.01, rel=1e-4)


def test_an_optimizer_of_some_weights_sees_the_gradient_of_one_epoch() -> None:
    estimator = TrainableGaussian(torch.zeros(2))
    vi = make(estimator=estimator)
    vi.optimizer = torch.optim.SGD([estimator.mu], lr=0.0)
    gradients = []
    for _ in range(2):
        vi.objective.parameters[0].grad = None
        vi.history.losses["total"].clear()  # the same epoch again, so the same draws
        vi.step(A)
        gradients.append([row.grad.clone() for row in vi.objective.parameters])
    for one, again in zip(*gradients, strict=True):
        assert torch.equal(one, again)


def test_a_fit_killed_before_its_last_checkpoint_has_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vi = make(out=tmp_path)
    monkeypatch.setattr(RunFiles, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        vi.run(A, 3)
    last = torch.load(tmp_path / "last_estimator.pt", weights_only=True)
    assert torch.equal(last["mu"], vi.posterior_estimator.mu)
    assert (tmp_path / "best_estimator.pt").exists()


def killed(files: RunFiles, state: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"diff_mode": "backward"}, "diff_mode is 'backward': it must be one of reverse, forward"),
        ({"gradient_estimation_method": "reparam"}, "must be one of pathwise, score"),
        ({"n_samples_per_epoch": 0}, "n_samples_per_epoch is 0: it must be at least 1"),
        ({"n_samples_regularisation": -1}, "n_samples_regularisation is -1"),
        ({"n_samples_per_epoch": 2.5}, "n_samples_per_epoch is 2.5: it must be a whole number"),
        ({"samples_per_call": -1}, "samples_per_call is -1: it must be at least 1"),
        ({"samples_per_call": 0}, "samples_per_call is 0: it must be at least 1"),
        ({"jacobian_chunk_size": -1}, "jacobian_chunk_size is -1: it must be at least 1"),
        ({"gradient_clipping_norm": -1.0}, "gradient_clipping_norm is -1.0: it must be more"),
        ({"gradient_clipping_norm": math.nan}, "gradient_clipping_norm is nan"),
        ({"w": math.nan}, "w is nan: it must be at least 0"),
        ({"loss": lambda params, data: None}, "the loss returned a NoneType: it must return num"),
        ({"loss": lambda params, data: params.sum() * 1j}, "the loss returned a complex number"),
        ({"loss": lambda params, data: params}, r"the loss returned shape \(2,\) for parameters"),
        ({"loss": black_box}, "give gradient_estimation_method='score'"),
        ({"loss": lambda params, data: torch.ones(())}, "does not depend on the parameters"),
        ({"estimator": torch.nn.Identity()}, "has no parameters to fit"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said: str) -> None:
    def detached(params, data):
        loss = options["loss"]
        return loss(params.detach() if loss is black_box else params, data)

    estimator = options.get("estimator") or TrainableGaussian(torch.zeros(2))
    rest = {name: row for name, row in options.items() if name not in ("loss", "estimator")}
    with pytest.raises(SetupError, match=said):
        VI(
            detached if "loss" in options else Quadratic(),
            PRIOR,
            estimator,
            optimizer=torch.optim.SGD(list(estimator.parameters()) or [torch.zeros(1)], lr=1),
            progress_bar=False,
            ranks=Ranks(),
            **rest,
        ).run(A, 1)


def test_samples_without_gradient_need_the_score_method() -> None:
    class Fixed(TrainableGaussian):
        def sample(self, n):
            z, log_q = super().sample(n)
            return z.detach(), log_q

    with pytest.raises(SetupError, match="samples carry no gradient"):
        make(estimator=Fixed(torch.zeros(2))).run(A, 1)


def test_a_flow_of_normflows_works_as_it_is() -> None:
    normflows = pytest.importorskip("normflows")
    layers = [
        normflows.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8),
        normflows.flows.LULinearPermute(2),
    ]
    base = normflows.distributions.DiagGaussian(2, trainable=False)
    flow = normflows.NormalizingFlow(base, layers)
    totals = make(estimator=flow, lr=0.02).run(A, 30, math.inf).losses["total"]
    assert sum(totals[-10:]) < 0.8 * sum(totals[:10])


def test_names_and_their_order_are_blackbirds() -> None:
    """What its users write by position works here; what is added stands behind, by name only."""
    parameters = inspect.signature(VI).parameters.values()
    by_position = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert by_position == [
        "loss",
        "prior",
        "posterior_estimator",
        "w",
        "initialize_estimator_to_prior",
        "initialization_lr",
        "gradient_clipping_norm",
        "optimizer",
        "n_samples_per_epoch",
        "n_samples_regularisation",
        "diff_mode",
        "gradient_estimation_method",
        "jacobian_chunk_size",
        "device",
        "progress_bar",
        "progress_info",
        "log_tensorboard",
        "tensorboard_log_dir",
    ]
