"""Checks of a GPU: only where `-m gpu` asks for them. `make test-gpu` does, and writes a report."""

import os
import sys
import time
import traceback
from collections.abc import Generator
from pathlib import Path

import pytest

from hpckit.stats.sampler.gpu_library import GpuLibraryError
from tests.gpu.checks import NotHere, Recorder, limit_s
from tests.gpu.dry import ENFORCE
from tests.gpu.journal import ABSENT, FAILED, PASSED, RUNNING, VARIABLE, Journal, read_checks
from tests.gpu.machine import Machine, open_machine
from tests.gpu.raw import keeper

_FOLDER = Path(__file__).parent
# What others stand on, and what is timed, comes first; files that are not named here come last, and
# what may take longest after them.
_ORDER = (
    "test_machine", "test_device_bench", "test_speed", "test_sampler", "test_utilization",
    "test_activity", "test_training", "test_microbatches", "test_inference", "test_advice",
)  # fmt: skip
_LAST = ("test_compiled",)
_RECORDER = pytest.StashKey[Recorder]()
_BEGAN = pytest.StashKey[float]()
_LEFT_OUT = pytest.StashKey[int]()
_ENDED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Know the marker where pyproject.toml is not the configuration."""
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU; `make test-gpu`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave checks out that nobody asked for, and those that were made before a crash."""
    asked = "gpu" in (config.option.markexpr or "")
    made = {row.id for row in read_checks(_journal().events()) if row.verdict != RUNNING}
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        own = item.get_closest_marker("gpu") is not None
        (left if own and (not asked or item.nodeid in made) else kept).append(item)
        if own:  # a library's warning says nothing of this GPU
            item.add_marker(pytest.mark.filterwarnings("default"))
    kept.sort(key=_place)
    if left:
        config.stash[_LEFT_OUT] = 0 if asked else len(left)
        config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the journal what is to be made, after `-k` and the like."""
    wanted = [item.nodeid for item in session.items if item.get_closest_marker("gpu")]
    _journal().put({"event": "collected", "ids": wanted})


def _place(item: pytest.Item) -> int:
    if item.name in _LAST:
        return len(_ORDER) + 1
    known = _FOLDER in item.path.parents and item.path.stem in _ORDER
    return _ORDER.index(item.path.stem) if known else len(_ORDER)


def title_of(item: pytest.Item, title: str) -> str:
    """Return what the report calls a check: with its parameters, where it has some."""
    case = getattr(item, "callspec", None)
    return f"{title}: {case.id}" if case else title


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was not asked for."""
    if count := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.line(f"{count} checks of a GPU were left out: `make test-gpu` makes them.")


def _journal() -> Journal:
    path = os.environ.get(VARIABLE)
    return Journal(Path(path) if path else None)


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The GPU; without one, pytest ends here."""
    try:
        return open_machine(tmp_path_factory.mktemp("gpu"))
    except GpuLibraryError as error:
        pytest.exit(f"No NVIDIA GPU answers here ({error}): nothing was tested.", returncode=4)


@pytest.fixture
def report(request: pytest.FixtureRequest, machine: Machine) -> Recorder:
    """Record the figures of one check."""
    recorder: Recorder = request.node.stash[_RECORDER]
    recorder.enforced = not machine.dry or bool(os.environ.get(ENFORCE))
    machine.keep = keeper(_journal().path, request.node.nodeid)
    for word in request.node.get_closest_marker("gpu").kwargs["needs"]:
        if why := machine.lacks(word):
            raise NotHere(why)
    return recorder


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Note that a check begins before anything of it runs."""
    marker = item.get_closest_marker("gpu")
    if marker is None:
        return (yield)
    journal, name = _journal(), item.nodeid
    item.stash[_BEGAN] = began = time.monotonic()
    item.stash[_RECORDER] = Recorder(
        tell=lambda event: journal.put({"id": name, **event}),
        until=began + limit_s(marker.kwargs["budget_s"]),
    )
    journal.put(
        {
            "event": "began",
            "id": name,
            "title": title_of(item, marker.kwargs["title"]),
            "budget_s": marker.kwargs["budget_s"],
            "at": time.time(),
        }
    )
    found = yield
    if why := _unusable():
        item.session.shouldstop = why  # the next pytest goes on with what is left
    return found


def _unusable() -> str:
    """Say why CUDA is of no use in this process any more: an error in a kernel stays for good."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return ""
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return f"CUDA is unusable after this: {error}"
    torch.cuda.empty_cache()
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a check whose figures do not keep their limits, once all of them are recorded."""
    recorder = item.stash.get(_RECORDER, None)
    try:
        found = yield
    except NotHere:
        if recorder is None or not recorder.misses():
            raise
        found = None  # what was measured until then is wrong all the same
    if recorder and (misses := recorder.misses()):
        pytest.fail("\n".join(misses), pytrace=False)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell the journal what became of a check; what is not here is no failure."""
    found = yield
    if item.stash.get(_RECORDER, None) is None:
        return found
    if call.excinfo and call.excinfo.errisinstance(NotHere):
        found.outcome = "skipped"
        found.longrepr = (str(item.path), 0, str(call.excinfo.value))
        vars(found)["not_here"] = True
    over = found.outcome != "passed" or call.when == "teardown"
    if over and not item.stash.get(_ENDED, False):
        item.stash[_ENDED] = True
        why = _why(call)
        verdict = PASSED if found.outcome == "passed" else FAILED
        if getattr(found, "not_here", False):
            verdict = ABSENT
        seconds = round(time.monotonic() - item.stash[_BEGAN], 2)
        _journal().put(
            {
                "event": "ended",
                "id": item.nodeid,
                "verdict": verdict,
                "why": why,
                "seconds": seconds,
            }
        )
    return found


def _why(call: pytest.CallInfo[None]) -> str:
    """Return what a failure says: its words first, then the last lines of where it was."""
    if call.excinfo is None:
        return ""
    error = call.excinfo.value
    said = str(error) or type(error).__name__
    if isinstance(error, NotHere | pytest.fail.Exception):
        return said
    if type(error).__name__ == "OutOfMemoryError":  # torch's, of this process
        said = (
            "the GPU has too little free memory for this check: end what else uses it, or take a "
            f"whole GPU. {said}"
        )
    frames = traceback.extract_tb(error.__traceback__)
    own = [row for row in frames if "site-packages" not in row.filename][-2:]
    places = [f"  {Path(row.filename).name}:{row.lineno}: {row.line}" for row in own]
    return "\n".join([f"{type(error).__name__}: {said}"[:2000], *places])


def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, str] | None:
    """Name what is not on this machine so: it is neither passed nor skipped."""
    if getattr(report, "not_here", False):
        return "not here", "-", "NOT ON THIS MACHINE"
    return None
