"""A thread that can be given up: NVML calls go through it, since they hang when the driver does."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Job(Generic[Answer]):
    """One call on its way: `done` when `answer` or `error` is there."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call = call
        self._done = threading.Event()
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def work(self) -> None:
        """Make the call; keep what it raises for the one who asked."""
        try:
            self.answer = self._call()
        except BaseException as error:  # noqa: BLE001  # raised again by `result`
            self.error = error
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; tell whether it is done."""
        return self._done.wait(seconds)

    def result(self) -> Answer | None:
        """Return the answer of a call that is done, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.answer


class Worker:
    """One thread that makes calls in turn, until it is given up."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job[object] | None] = SimpleQueue()
        # A daemon: a call that never returns must not keep the sampler from ending.
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self, call: Callable[[], Answer]) -> Job[Answer]:
        """Have a call made; return at once."""
        job = Job(call)
        self._jobs.put(job)  # type: ignore[arg-type]
        return job

    def give_up(self) -> None:
        """Let the thread end when, if ever, its call returns."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.work()
