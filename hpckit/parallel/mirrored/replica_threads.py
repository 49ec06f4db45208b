"""A thread for each replica of one run, and the point where they wait for each other.

When one of them raises an error, the others end where they wait for it, and the caller gets that
error. The threads are those of `idle_threads`, which a later run uses again.
"""

import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch

from hpckit.parallel.devices import Replica
from hpckit.parallel.mirrored.idle_threads import hired
from hpckit.parallel.mirrored.per_replica import Tree
from hpckit.parallel.older_python import add_note
from hpckit.parallel.torch_versions import autocast_of

T = TypeVar("T")
Merge = Callable[[list[Tree]], Sequence[Tree]]


class _Ended(BaseException):
    """Another replica failed. It is a BaseException, so that no `except Exception` catches it."""


class Meeting:
    """Where the replicas of one run wait for each other; the last one to come does the work."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._changed = threading.Condition()
        self._came: dict[int, tuple[str, Tree]] = {}
        self._results: Sequence[Tree] = ()
        self._round = 0
        self._returned: set[int] = set()
        self._over = False

    def meet(self, number: int, what: str, value: Tree, merge: Merge) -> Tree:
        """Wait for all replicas, and return this replica's part of `merge(their values)`.

        Raises:
            RuntimeError: the others are at another call, so that all would wait for ever.
        """
        with self._changed:
            if self._over:
                raise _Ended
            self._came[number] = (what, value)
            this_round = self._round
            self._check(number)
            if len(self._came) == self._count:
                self._finish(merge)
            while self._round == this_round:
                if self._over:
                    raise _Ended
                self._changed.wait()
            # These are the results of this round: the next one cannot end without this replica.
            return self._results[number]

    def leave(self, number: int) -> None:
        """Note that a replica has returned, and will not come here again.

        Raises:
            RuntimeError: others wait for it.
        """
        with self._changed:
            self._returned.add(number)
            if not self._over:
                self._check(number)

    def end(self) -> None:
        """End every replica that waits here, or comes later."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _check(self, number: int) -> None:
        places = {what for what, _ in self._came.values()}
        if len(places) > 1 or (places and self._returned):
            where = {at: f"is in {what}" for at, (what, _) in self._came.items()}
            where |= dict.fromkeys(self._returned, "has returned")
            told = ", ".join(f"replica {at} {where[at]}" for at in sorted(where))
            raise RuntimeError(
                f"The replicas do not meet: {told}. "
                "Every replica must make the same calls in the same order, also with no samples."
            )

    def _finish(self, merge: Merge) -> None:
        self._results = merge([self._came[at][1] for at in range(self._count)])
        self._came = {}
        self._round += 1
        self._changed.notify_all()


@dataclass
class _Outcome:
    """The results and errors of the replicas of one run."""

    results: dict[int, Tree] = field(default_factory=dict)
    failures: list[tuple[Replica, BaseException]] = field(default_factory=list)


def run_together(replicas: Sequence[Replica], body: Callable[[Replica, Meeting], T]) -> list[T]:
    """Call `body` once for each replica, all at the same time; return what each returned.

    Raises:
        BaseException: what the first replica to fail raised, with a note that says which it was.
    """
    meeting, outcome = Meeting(len(replicas)), _Outcome()
    settings = _Settings.here(replicas)

    def work(replica: Replica) -> None:
        try:
            with settings.on(replica):
                outcome.results[replica.number] = body(replica, meeting)
            meeting.leave(replica.number)
        except _Ended:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by whoever called
            outcome.failures.append((replica, error))
            meeting.end()

    if len(replicas) == 1:
        work(replicas[0])
    else:
        _in_threads(replicas, work, meeting)
    if outcome.failures:
        _raise(outcome.failures)
    return [outcome.results[replica.number] for replica in replicas]


def _cores_of_each(replicas: Sequence[Replica]) -> int:
    """Return how many cores each replica's thread may use: CPU replicas share torch's threads.

    If each used all cores, two replicas on two cores would take 1.5 times as long as one.
    """
    sharing = sum(replica.device.type == "cpu" for replica in replicas)
    return max(1, torch.get_num_threads() // max(1, sharing))


def _in_threads(
    replicas: Sequence[Replica], work: Callable[[Replica], None], meeting: Meeting
) -> None:
    with hired(len(replicas), cores=_cores_of_each(replicas)) as threads:
        try:
            for replica, thread in zip(replicas, threads, strict=True):
                # Each has its own copy of the caller's context variables, since a context cannot
                # be entered twice.
                within = contextvars.copy_context().run
                thread.begin(partial(within, work, replica), name=f"mirrored-{replica.number}")
            for thread in threads:
                thread.wait()
        except BaseException:  # Ctrl-C: no replica may go on waiting for the others
            meeting.end()
            for thread in threads:
                thread.wait()
            raise


def _raise(failures: Sequence[tuple[Replica, BaseException]]) -> None:
    first, error = failures[0]
    add_note(error, f"Raised in {first}.")
    for replica, other in failures[1:]:
        if other is not error:
            add_note(error, f"Also, in {replica}: {type(other).__name__}: {other}")
    raise error


@dataclass(frozen=True)
class _Settings:
    """The settings that torch keeps for each thread, as the caller of `run` has them."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype, bool], ...]
    streams: tuple[torch.cuda.Stream, ...]

    @classmethod
    def here(cls, replicas: Sequence[Replica]) -> "_Settings":
        kinds = dict.fromkeys(replica.device.type for replica in replicas)
        gpus = dict.fromkeys(
            replica.device for replica in replicas if replica.device.type == "cuda"
        )
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(
                (kind, dtype, torch.is_autocast_cache_enabled())
                for kind in kinds
                if (dtype := autocast_of(kind)) is not None
            ),
            streams=tuple(torch.cuda.current_stream(gpu) for gpu in gpus),
        )

    @contextmanager
    def on(self, replica: Replica) -> Iterator[None]:
        """Apply these settings to a replica's thread, and make its device the current one.

        On each GPU, all threads use the stream that the caller uses there. So the work of two
        threads on one GPU stays in order, and nothing has to be synchronized by hand.
        """
        with ExitStack() as stack:
            for stream in self.streams:
                stack.enter_context(torch.cuda.stream(stream))
            if replica.device.type == "cuda":
                stack.enter_context(torch.cuda.device(replica.device))
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            if self.autocast:
                # Autocast caches cast weights until the caller's block ends; a run may change them.
                stack.callback(torch.clear_autocast_cache)
            for kind, dtype, cache in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=cache))
            yield
