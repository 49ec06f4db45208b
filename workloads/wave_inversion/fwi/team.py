"""How ranks work together: the first one decides, all others do their shots of what it asks.

Only the first rank runs the optimizer. So ranks cannot come apart: there is one line search, not
one per rank that should take the same branches.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fwi.shots import Replicas, Sums
from hpckit.parallel.errors import SetupError
from hpckit.parallel.ranks import Rank
from hpckit.parallel.stopping import stop_requested

Result = TypeVar("Result")
_END, _ENERGY, _MISFIT = 0.0, 1.0, 2.0


class Stopped(Exception):  # noqa: N818  # no error: a signal asked for it
    """A rank was told to stop."""


def together(place: Rank, work: Callable[[], Result]) -> Result:
    """Do something on all ranks; where it fails on one, all end, and the first such says why.

    Raises:
        SetupError: it failed here.
        SystemExit: it failed elsewhere; status 1, and nothing is left to say.
    """
    problem, found = None, []
    try:
        found.append(work())
    except SetupError as error:
        problem = error
    if place.meets:
        failed = torch.zeros(place.world_size, device=place.device)
        failed[place.rank] = problem is not None
        with _meeting():
            dist.all_reduce(failed)
        if failed.any() and int(failed.argmax()) != place.rank:
            sys.exit(1)
    if problem:
        raise problem
    return found[0]


@contextmanager
def _meeting() -> Iterator[None]:
    """Say in one line that another rank is gone; torch's own message names sockets."""
    try:
        yield
    except RuntimeError as error:  # of the backend: gloo's is this, NCCL's derives from it
        # Of gloo's message: no file of its own before, no advice after.
        reason = re.sub(r"^\[[^]]*\]\s*|\. .*", "", str(error).strip().splitlines()[0])
        raise SetupError(
            f"the ranks have lost each other: one has ended, and its log may say why ({reason})"
        ) from error


class Team:
    """All ranks with their shots."""

    def __init__(self, place: Rank, replicas: Replicas, survey: tuple[int, int, int]) -> None:
        """Take this rank's shots; `survey` is its shots and its cells, nx and nz."""
        self._place, self._replicas = place, replicas
        self._shots, *self._shape = survey
        self._over = False

    def energy(self, velocity: Tensor, cutoff_hz: float) -> float:
        """Return the squares of all observed traces, on the first rank."""
        sums, _ = self._ask(_ENERGY, velocity, cutoff_hz)
        return float(sums.sum())

    def misfit(self, velocity: Tensor, cutoff_hz: float) -> tuple[float, Tensor]:
        """Return the squared residuals of all shots and their gradient, on the first rank.

        Raises:
            Stopped: a rank was told to.
        """
        sums, gradient = self._ask(_MISFIT, velocity, cutoff_hz)
        return float(sums.sum()), gradient

    def follow(self) -> None:
        """Do what the first rank asks, until it needs no more; on all other ranks.

        Raises:
            SetupError: this rank's work failed, or the others are gone.
        """
        while True:
            message = self._heard(torch.zeros(2 + self._shape[0] * self._shape[1]))
            if message[0] == _END:
                return
            velocity = message[2:].reshape(self._shape)
            self._work(float(message[0]), velocity, float(message[1]))

    def dismiss(self) -> None:
        """Let the other ranks end, unless they have; on the first one."""
        if not self._over:
            self._heard(torch.zeros(2 + self._shape[0] * self._shape[1]))

    def _ask(self, what: float, velocity: Tensor, cutoff_hz: float) -> Sums:
        self._over = True  # if this fails, it does on all ranks
        self._heard(torch.cat([torch.tensor([what, cutoff_hz]), velocity.flatten()]))
        stop, sums, gradient = self._work(what, velocity, cutoff_hz)
        self._over = False
        if stop:
            raise Stopped
        return sums, gradient

    def _heard(self, message: Tensor) -> Tensor:
        """Send a message of the first rank to all."""
        if not self._place.meets:
            return message
        sent = message.to(self._place.device, torch.float64)
        with _meeting():
            dist.broadcast(sent, 0)
        return sent.cpu()

    def _work(self, what: float, velocity: Tensor, cutoff_hz: float) -> tuple[bool, Tensor, Tensor]:
        """Do this rank's shots and add up those of all: sums, not means, so any shares will do.

        A shot's sum is 0 on all ranks but its own, so that adding these is exact, and the total is
        taken in the same order on any number of ranks.
        """
        work = self._replicas.misfit if what == _MISFIT else self._replicas.energy
        sums, gradient = together(self._place, lambda: work(velocity, cutoff_hz))
        stop = torch.tensor([stop_requested()], dtype=torch.float64)
        message = torch.cat([stop, sums, gradient.flatten()]).to(self._place.device)
        if self._place.meets:
            with _meeting():
                dist.all_reduce(message)
        message = message.cpu()
        gradient = message[1 + self._shots :].reshape(self._shape)
        return bool(message[0]), message[1 : 1 + self._shots], gradient
