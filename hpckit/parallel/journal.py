"""What a training run reports and keeps: lines, metrics.jsonl, and how far it has come."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from hpckit.parallel.arguments import refuse_other_settings
from hpckit.parallel.errors import SetupError
from hpckit.parallel.ranks import say
from hpckit.parallel.run_folder import Metrics
from hpckit.parallel.throughput import Throughput

_SUMS = ("step", "loss_sum", "hits", "accuracy", "best")


class Journal:
    """Counts steps and sums of a run, and reports them; only the leading rank writes anything.

    Args:
        samples: of an epoch.
        batch_size: of all ranks and replicas together.
        epochs: of the whole run.
        log_every: steps between two lines of metrics.
        checkpoint_every: epochs between two checkpoints.
        settings: what shapes the loss curve.
        devices: see `device_label`.
        workload: for the checkpoint, which another one refuses.
        leads: this process writes.

    Attributes:
        step: steps taken, over all epochs.
        accuracy: of the held-out samples, after the last epoch that ended.
        judged: what counts as right, in words; see `Task`.
    """

    def __init__(
        self,
        *,
        samples: int,
        batch_size: int,
        epochs: int,
        log_every: int,
        checkpoint_every: int,
        settings: Mapping[str, Any],
        devices: str,
        workload: str,
        leads: bool = True,
    ) -> None:
        self.samples, self.batch_size, self.epochs = samples, batch_size, epochs
        self.steps_per_epoch = math.ceil(samples / batch_size)
        self.total_steps = epochs * self.steps_per_epoch
        self.settings, self.workload = dict(settings), workload
        self.judged = ""
        self.step, self.loss_sum, self.hits, self.accuracy, self.best = 0, 0.0, 0.0, 0.0, -1.0
        self._log_every, self._checkpoint_every = log_every, checkpoint_every
        self._leads = leads
        self._metrics: Metrics | None = None
        self._window = self._epoch = (time.perf_counter(), 0)
        self._counted = 0.0  # when the last step was; tests at the end of an epoch come later
        self._throughput = Throughput(devices)

    def resume(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            SetupError: it was made with other settings.
        """
        refuse_other_settings(self.settings, checkpoint["settings"])
        for name in _SUMS:
            setattr(self, name, checkpoint[name])
        done = ": all are taken" if self.step >= self.total_steps else ""
        self.tell(f"resuming after step {self.step} of {self.total_steps}{done}")

    def open(self, metrics: Metrics) -> None:
        """Begin to write."""
        self._metrics = metrics

    def tell(self, line: str) -> None:
        """Print a line, once for all ranks."""
        if self._leads:
            say(line)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs of the journal."""
        sums = {name: getattr(self, name) for name in _SUMS}
        epoch = self.step // self.steps_per_epoch
        return {"workload": self.workload, "settings": self.settings, "epoch": epoch, **sums}

    def epochs_left(self) -> Iterator[int]:
        """Yield the numbers of the epochs to train, counted from 0; the first may be begun."""
        for epoch in range(self.step // self.steps_per_epoch, self.epochs):
            self._epoch = self._window = (time.perf_counter(), 0)
            self._throughput.start()
            yield epoch

    @property
    def steps_done(self) -> int:
        """Steps of the current epoch that were taken."""
        return self.step % self.steps_per_epoch

    @property
    def next_size(self) -> int:
        """How many samples the next batch has; the last of an epoch may be short."""
        return min(self.batch_size, self.samples - self.steps_done * self.batch_size)

    def reading(self) -> AbstractContextManager[None]:
        """Within this a batch is got: so long the devices may wait for the host."""
        return self._throughput.reading()

    def count(self, loss_sum: float, hits: float) -> None:
        """Count one step, by the sums over its whole batch; write a line now and then.

        Raises:
            SetupError: the loss is no number any more.
        """
        size = self.next_size
        self.step += 1
        if not math.isfinite(loss_sum):
            raise SetupError(f"the loss is {loss_sum} at step {self.step}: try a smaller --lr")
        self.loss_sum, self.hits = self.loss_sum + loss_sum, self.hits + hits
        self._window = (self._window[0], self._window[1] + size)
        self._epoch = (self._epoch[0], self._epoch[1] + size)
        self._counted = time.perf_counter()
        self._throughput.step(size)
        # Also at the last one, so that a run of few steps has its loss somewhere.
        if self.step % self._log_every == 0 or self.step == self.total_steps:
            epoch = (self.step - 1) // self.steps_per_epoch + 1
            self._write(epoch, loss=loss_sum / size, samples_per_s=self._rate(self._window))
            self._window = (time.perf_counter(), 0)

    def end_epoch(self, test_loss: float, accuracy: float) -> tuple[str, ...]:
        """Report an epoch; return the names of the checkpoints that are due.

        Raises:
            SetupError: the last step has spoilt the weights; no checkpoint may have them.
        """
        epoch = self.step // self.steps_per_epoch
        if not math.isfinite(test_loss):
            raise SetupError(
                f"the held-out loss is {test_loss} after epoch {epoch}: try a smaller --lr"
            )
        report = {
            "train_loss": self.loss_sum / self.samples,
            "train_accuracy": self.hits / self.samples,
            "samples_per_s": self._rate(self._epoch),
        }
        self.loss_sum = self.hits = 0.0
        self.accuracy = accuracy
        self._write(epoch, **report, test_loss=test_loss, test_accuracy=accuracy)
        right = f"{self.judged}:" if self.judged else "acc"
        self.tell(
            f"epoch {epoch}/{self.epochs}  loss {report['train_loss']:.3f}  "
            f"train {right} {report['train_accuracy']:.3f}  held-out {right} {accuracy:.3f}  "
            f"{report['samples_per_s']:.0f} samples/s"
        )
        every = self._checkpoint_every or self.epochs
        if epoch % every and epoch != self.epochs:
            return ()
        better, self.best = accuracy > self.best, max(accuracy, self.best)
        # best.pt first: last.pt says how good it is, and who is killed in between goes on from the
        # one before, and writes both again.
        return ("best.pt", "last.pt") if better else ("last.pt",)

    def end(self, setting: str) -> None:
        """Say how fast the run was, and how it ended."""
        if speed := self._throughput.speed:
            figures = {"samples_per_s": speed.samples_per_s, "s_per_step": speed.s_per_step}
            figures["input_s"] = speed.input_s / speed.steps
            self._write(self.epochs, devices=speed.devices, **figures)
            self.tell(str(speed))
        epochs = counted(self.step // self.steps_per_epoch, "epoch")
        right = f"{self.judged} of the target:" if self.judged else "accuracy"
        self.tell(f"held-out {right} {self.accuracy:.3f} after {epochs}, {setting}")

    def _rate(self, window: tuple[float, int]) -> float:
        """Return samples per second of a window, from its begin to the last step."""
        return window[1] / (self._counted - window[0])

    def _write(self, epoch: int, **figures: float | str) -> None:
        if self._metrics:
            self._metrics.write(self.step, epoch, **figures)


def counted(number: int, noun: str) -> str:
    """Return '1 rank' or '8 ranks'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
