"""Generalised variational inference over MPI.

A posterior estimator q is fitted to a simulator: E_q[loss(parameters)] + w KL(q || prior) is made
small by gradient steps. Names and meaning are those of blackbirds (github.com/arnauqb/blackbirds):
its users change an import. What differs is listed in docs/mpi_vi.md.
"""

import math
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch.nn.utils import clip_grad_norm_

from hpckit.inference.adapters import Estimator
from hpckit.inference.checks import check_course, check_parts, check_prior, device_of
from hpckit.inference.evaluate import Evaluation, Loss
from hpckit.inference.noise import sample_seed, seeded_globals
from hpckit.inference.objective import Objective
from hpckit.inference.progress import (
    Events,
    Figures,
    History,
    ProgressLine,
    RunFiles,
    refuse_other_fit,
    refuse_other_optimizer,
    restore,
    synchronise,
)
from hpckit.inference.same_fit import (
    optimizer_settings,
    refuse_differences,
    shapes,
    simulators,
)
from hpckit.inference.settings import COMPARED, check_settings
from hpckit.inference.shares import Draws, Prior
from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks, find_ranks
from hpckit.parallel.ranks import say


@dataclass(eq=False, repr=False)
class VI:
    """Fits a posterior estimator.

    Each rank evaluates its share of the samples, and of the draws for the divergence; one message
    per epoch adds them up, and every rank takes the same step. All random numbers follow from
    (seed, epoch, number of the sample), so losses and gradients do not depend on how many ranks
    there are.

    Args:
        loss: (parameters, data) -> a number: see `Evaluation`.
        prior: has `log_prob`, as torch.distributions; with w=0 it is not asked, and may be None.
        posterior_estimator: has `sample(n) -> (z, log_q)` and `log_prob(z)`.
        w: weight of the divergence.
        initialize_estimator_to_prior: fit the estimator to the prior alone first.
        initialization_lr: for that.
        gradient_clipping_norm: larger gradients are scaled down to this norm.
        optimizer: of the estimator's parameters; Adam with 1e-3 if none is given.
        n_samples_per_epoch: parameters simulated per epoch, over all ranks together.
        n_samples_regularisation: draws for the divergence, over all ranks together.
        diff_mode: "reverse" or "forward", of the simulator.
        gradient_estimation_method: "pathwise" needs a simulator that torch can differentiate,
            "score" works for any.
        jacobian_chunk_size: see `Evaluation`.
        device: where this rank's parameters and estimator are.
        progress_bar: show how far it is, on rank 0.
        progress_info: and the losses.
        log_tensorboard: write the losses as events, too.
        tensorboard_log_dir: where; without it `out`/tensorboard, or torch's own choice.
        seed: of everything that is drawn.
        samples_per_call: how many samples the loss takes at once: see `Evaluation`. If not given:
            all of a rank's if the loss says that it is `batched`, else one.
        regularisation_block: draws of the divergence that are worked on at once.
        baseline: for the score method, subtract the mean loss of the other samples, which changes
            no expectation but lowers the variance.
        ranks: those that share the work; found by `find_ranks` if not given.
        out: run folder for checkpoints and the weights; $HPCKIT_RUN_DIR if not given; without
            either nothing is written.
        resume: go on from `out`/checkpoints/last.pt, if there is one.
        checkpoint_every: epochs between checkpoints.
        should_stop: asked once an epoch on each rank; one yes ends all, with a checkpoint.
        on_epoch: called on each rank after each epoch, counted from 1, with its figures.
        check_ranks: compare data, simulator and settings of all ranks when a fit begins. What is
            not plain (numbers, texts, tensors, arrays, frames, and lists or dicts of them) is not
            compared, nor is the prior.
        more_settings: what else a fit that goes on from a checkpoint must have as before, such as
            the size of the simulator; numbers and words by their names.

    Attributes:
        losses_hist: lists `total`, `loss`, `regularisation`, one number per epoch.
        best_loss: the smallest total.
        best_estimator_state_dict: the weights that had it.

    Raises:
        SetupError: a word or number that makes no sense, or ranks that cannot meet.
    """

    loss: Loss
    prior: Prior
    posterior_estimator: torch.nn.Module
    w: float = 1.0
    initialize_estimator_to_prior: bool = False
    initialization_lr: float = 1e-3
    gradient_clipping_norm: float = math.inf
    optimizer: torch.optim.Optimizer | None = None
    n_samples_per_epoch: int = 10
    n_samples_regularisation: int = 10_000
    diff_mode: str = "reverse"
    gradient_estimation_method: str = "pathwise"
    jacobian_chunk_size: int | None = None
    device: str | torch.device = "cpu"
    progress_bar: bool = True
    progress_info: bool = True
    log_tensorboard: bool = False
    tensorboard_log_dir: str | None = None
    _: KW_ONLY
    seed: int = 0
    samples_per_call: int | None = None
    regularisation_block: int = 2500
    baseline: bool = True
    ranks: Ranks | None = None
    out: Path | str | None = None
    resume: bool = False
    checkpoint_every: int = 10
    should_stop: Callable[[], bool] = lambda: False
    on_epoch: Callable[[int, Figures], None] = lambda epoch, figures: None
    check_ranks: bool = True
    more_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the arguments; nothing is drawn yet."""
        check_settings(vars(self))
        method = self.gradient_estimation_method
        check_parts(self.loss, self.posterior_estimator, self.optimizer, method)
        if self.w or self.initialize_estimator_to_prior:
            check_prior(self.prior)
        self.objective = self._objective()
        self.ranks = self.objective.ranks
        self.device = device_of(self.device, self.posterior_estimator)
        if self.optimizer is None:
            self.optimizer = torch.optim.Adam(self.posterior_estimator.parameters(), lr=1e-3)
        folder = os.environ.get("HPCKIT_RUN_DIR", "") if self.out is None else str(self.out)
        self.files = RunFiles(Path(folder) if folder else None, self.ranks)
        self.history = History()
        self.best_estimator_state_dict: dict[str, torch.Tensor] | None = None
        self.stopped = self._compared = False

    def _objective(self) -> Objective:
        batched = getattr(self.loss, "batched", False)
        return Objective(
            estimator=self.posterior_estimator,
            prior=self.prior,
            w=self.w,
            evaluation=Evaluation(
                self.loss,
                self.gradient_estimation_method,
                self.diff_mode,
                self.samples_per_call or (None if batched else 1),
                self.jacobian_chunk_size,
            ),
            samples=self.n_samples_per_epoch,
            draws=Draws(self.n_samples_regularisation, self.regularisation_block),
            baseline=self.baseline,
            seed=self.seed,
            ranks=find_ranks() if self.ranks is None else self.ranks,
        )

    @property
    def losses_hist(self) -> dict[str, list[float]]:
        """Lists `total`, `loss` and `regularisation`, one number per epoch."""
        return self.history.losses

    @property
    def best_loss(self) -> float:
        """The smallest total so far."""
        return self.history.best

    def run(
        self, data: object, n_epochs: int, max_epochs_without_improvement: float = 20
    ) -> History:
        """Fit until `n_epochs` are done, or that many brought no improvement; on all ranks.

        Args:
            data: what the loss compares with; the same on all ranks.
            n_epochs: counted from the beginning of the fit, also when it goes on from a checkpoint.
            max_epochs_without_improvement: may be infinite.

        Returns:
            The history, which is the same on all ranks.

        Raises:
            SetupError: see `step`, or the checkpoint is of another fit, or the ranks have not the
                same data, simulator or settings, or a number is none.
        """
        check_course(n_epochs, max_epochs_without_improvement)
        with self.files.ranks.ending_together():
            self._compare(
                data,
                n_epochs=n_epochs,
                max_epochs_without_improvement=max_epochs_without_improvement,
            )
            resumed, given_up = self._begin(), False
            if resumed:  # it may have ended
                given_up = self.history.since_best >= max_epochs_without_improvement
            events = self._events()
            progress = ProgressLine(
                n_epochs,
                shown=self.progress_bar and self.files.ranks.leads,
                info=self.progress_info,
            )
            while self.history.epochs < n_epochs and not given_up:
                before = deepcopy(self.posterior_estimator.state_dict())
                figures = self._epoch(data)
                if self.history.count(figures):
                    self.best_estimator_state_dict = before
                progress.show(self.history, figures)
                self.on_epoch(self.history.epochs, figures)
                events.write(self.history.epochs - 1, **figures.losses)
                given_up = self.history.since_best >= max_epochs_without_improvement
                ends = given_up or self.stopped or self.history.epochs >= n_epochs
                if ends or self.history.epochs % self.checkpoint_every == 0:
                    self._save()
                if given_up or self.stopped:
                    epochs = self.history.since_best
                    why = "asked to stop" if self.stopped else f"no improvement for {epochs} epochs"
                    self._tell(f"stopped after epoch {self.history.epochs}: {why}")
                    break
            events.close()
        return self.history

    def step(self, data: object) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Do one epoch; return its total, loss and regularisation (0-D), before the step.

        Raises:
            SetupError: no sample gave a number, or the estimator's own numbers are none any more,
                or the ranks have not the same data, simulator, weights or settings.
        """
        with self.files.ranks.ending_together():
            if not self._compared:  # `run` has not given all ranks rank 0's weights
                weights = self.posterior_estimator.state_dict()
                self._compare(data, **{"the estimator's weights": dict(weights)})
            figures = self._epoch(data)
        self.history.count(figures)
        total, loss, regularisation = figures.total, figures.loss, figures.regularisation
        return torch.tensor(total), torch.tensor(loss), torch.tensor(regularisation)

    def initialize_estimator(
        self,
        max_epochs_without_improvement: int = 50,
        atol: float = 1e-2,
        max_epochs: int = 10_000,
    ) -> float:
        """Fit the estimator to the prior alone, over all ranks; return the divergence reached.

        It ends when the divergence is below `atol`, or did not fall for some epochs.
        """
        check_prior(self.prior)
        parameters = self.objective.parameters
        optimizer = torch.optim.Adam(parameters, lr=self.initialization_lr)
        events, best, since_best = self._events(), math.inf, 0
        for epoch in range(max_epochs):
            optimizer.zero_grad()
            with self.files.ranks.ending_together():
                value = self.objective.differentiate_divergence(epoch)
            events.write(epoch, init_loss=value)
            since_best = 0 if value < best else since_best + 1
            best = min(best, value)
            if abs(value) < atol or since_best >= max_epochs_without_improvement:
                break
            optimizer.step()
        events.close()
        return best

    def sample_posterior(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return draws (count, d) of the best estimator and their log-densities (count,)."""
        estimator = deepcopy(self.posterior_estimator)
        if self.best_estimator_state_dict is not None:
            estimator.load_state_dict(self.best_estimator_state_dict)
        with (
            torch.no_grad(),
            seeded_globals(
                sample_seed(self.objective.seed, self.history.epochs, 0),
                next(estimator.parameters()).device,  # on a GPU its generator draws
            ),
        ):
            z, log_q = cast("Estimator", estimator).sample(count)
        return z, log_q

    @property
    def _steps(self) -> torch.optim.Optimizer:
        return cast("torch.optim.Optimizer", self.optimizer)  # there since the fit was made

    def _epoch(self, data: object) -> Figures:
        """Take one step."""
        epoch = self.history.epochs
        self._steps.zero_grad()
        for weight in self.objective.parameters:  # also those that the optimizer does not have
            weight.grad = None
        figures, stops = self.objective.differentiate(data, epoch, stop=self.should_stop())
        norm = float(clip_grad_norm_(self.objective.parameters, self.gradient_clipping_norm))
        if not (math.isfinite(norm) and math.isfinite(figures.regularisation)):
            raise SetupError(
                f"the estimator's gradient is {norm} in epoch {epoch + 1} (loss {figures.loss:g}, "
                f"regularisation {figures.regularisation:g}): try a smaller learning rate, "
                "or gradient_clipping_norm"
            )
        self._steps.step()
        self.stopped = stops > 0
        return figures

    def _compare(self, data: object, **settings: object) -> None:
        """Check that all ranks fit the same.

        Raises:
            SetupError: they do not.
        """
        self._compared = True
        if not self.check_ranks or self.files.ranks.size == 1:
            return
        estimator: Any = self.posterior_estimator  # or a wrapper, which may not tell its modules
        own = estimator.modules() if isinstance(estimator, torch.nn.Module) else [estimator]
        made, told = simulators(self.loss, own)
        settings |= told | self.objective.settings
        settings |= {name: getattr(self, name) for name in COMPARED}
        settings["the shapes of the estimator's weights"] = shapes(self.posterior_estimator)
        settings["the optimizer's settings"] = optimizer_settings(self._steps)
        refuse_differences(self.files.ranks, {"the data": data, **made}, settings)

    def _begin(self) -> bool:
        """Make all ranks start from the same weights: a checkpoint's, or rank 0's.

        Returns:
            Whether the fit goes on from a checkpoint.
        """
        if not self.objective.parameters:
            raise SetupError("the posterior estimator has no parameters to fit")
        if self.history.epochs:
            return False  # a second call of run goes on
        if self.resume and (state := self.files.load()):
            self._restore(state)
            return True
        synchronise(self.posterior_estimator, self.files.ranks)
        if self.initialize_estimator_to_prior:
            reached = self.initialize_estimator()
            self._tell(f"estimator fitted to the prior: divergence {reached:.3g}")
            self.files.write("estimator_fit_to_prior.pt", self.posterior_estimator.state_dict())
        return False

    def _restore(self, state: dict[str, Any]) -> None:
        before = state["settings"]
        # A checkpoint of an older hpckit does not have these.
        more = {name: one for name, one in self.more_settings.items() if name in before}
        refuse_other_fit({**self.objective.settings, **more}, before)
        refuse_other_optimizer(self._steps, state)
        restore(self.posterior_estimator, state["estimator"])
        self._steps.load_state_dict(state["optimizer"])
        self.best_estimator_state_dict = state["best_estimator"]
        self.history.load_state_dict(state["history"])
        self._tell(f"resuming after epoch {self.history.epochs}")

    def _save(self) -> None:
        """Write what is needed to go on, and both sets of weights by themselves."""
        # The checkpoint last: a fit that goes on from it at its end writes the others no more.
        self.files.write("last_estimator.pt", self.posterior_estimator.state_dict())
        if self.best_estimator_state_dict is not None:
            self.files.write("best_estimator.pt", self.best_estimator_state_dict)
        self.files.save(
            {
                "settings": {**self.objective.settings, **self.more_settings},
                "estimator": self.posterior_estimator.state_dict(),
                "optimizer": self._steps.state_dict(),
                "optimizer_kind": type(self._steps).__name__,
                "best_estimator": self.best_estimator_state_dict,
                "history": self.history.state_dict(),
            }
        )

    def _events(self) -> Events:
        out = self.files.folder
        folder = self.tensorboard_log_dir or (str(out / "tensorboard") if out else None)
        wanted = self.log_tensorboard and self.files.ranks.leads
        return Events(folder, wanted=wanted, epoch=self.history.epochs)

    def _tell(self, line: str) -> None:
        if self.files.ranks.leads and self.progress_bar:
            say(line)
