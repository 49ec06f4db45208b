"""NVML by its package, where there is no driver: what another package of its name lacks."""

from types import SimpleNamespace

import pytest

from hpckit.stats.sampler.gpu_library import Trouble
from hpckit.stats.sampler.nvml import Nvml, NvmlError


def test_an_older_package_of_the_same_name_is_no_traceback() -> None:
    """PyPI's `pynvml` 11 has no GPM: a GPU has none then, as with an old driver."""
    nvml = Nvml.__new__(Nvml)
    nvml._library = SimpleNamespace(NVMLError=RuntimeError, __file__="/x/pynvml/__init__.py")
    with pytest.raises(NvmlError, match=r"nvmlGpmQueryDeviceSupport: /x/pynvml/__init__.py") as one:
        nvml.call("nvmlGpmQueryDeviceSupport", None)
    assert one.value.trouble is Trouble.NEVER
    assert nvml._or_none("nvmlGpmQueryDeviceSupport", None) is None
