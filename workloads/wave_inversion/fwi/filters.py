"""What is done to traces before they are compared: taper of the end, low-pass. Both linear."""

import math

import numpy as np
import torch
from torch import Tensor

from fwi.packages import need

_ORDER = 6


class LowPass:
    """A causal Butterworth filter of order 6 that torch can differentiate.

    It is `scipy.signal.sosfilt` from rest, to rounding: for traces of nt samples the filter is the
    convolution with the first nt samples of its impulse response, and that is done here with FFTs
    of twice the length, so that nothing wraps round.
    """

    def __init__(self, cutoff_hz: float, dt: float, nt: int, device: torch.device) -> None:
        """Make a filter; a cutoff of 0 lets everything pass."""
        self.cutoff_hz, self._nt = cutoff_hz, nt
        self._response: Tensor | None = None
        if cutoff_hz:
            signal = need("scipy.signal")
            sections = signal.butter(_ORDER, cutoff_hz, fs=1 / dt, output="sos")
            impulse = np.zeros(nt)
            impulse[0] = 1
            response = torch.from_numpy(signal.sosfilt(sections, impulse)).to(device)
            self._response = torch.fft.rfft(response, 2 * nt)

    def __call__(self, traces: Tensor) -> Tensor:
        """Return filtered traces; float64 [..., nt]."""
        if self._response is None or not traces.numel():  # MKL's FFT refuses to do nothing
            return traces
        spectra = torch.fft.rfft(traces, 2 * self._nt) * self._response
        return torch.fft.irfft(spectra, 2 * self._nt)[..., : self._nt]


def end_taper(nt: int, samples: int, device: torch.device) -> Tensor:
    """Return weights [nt] that go to zero over the last samples, as a squared cosine does."""
    weights = torch.ones(nt, dtype=torch.float64, device=device)
    if samples:
        ramp = torch.arange(1, samples + 1, dtype=torch.float64, device=device) / samples
        weights[nt - samples :] = torch.cos(ramp * math.pi / 2) ** 2
    return weights
