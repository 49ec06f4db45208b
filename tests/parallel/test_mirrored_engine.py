"""Replicas run at once, meet, and end together."""

import contextvars
import os
import threading
import time
import traceback

import pytest
import torch

from hpckit.parallel.mirrored import MirroredStrategy, get_replica_context, idle_threads
from hpckit.parallel.mirrored.idle_threads import IDLE_NAME, end_idle
from tests.patience import LONG_S

pytestmark = pytest.mark.torch


def working() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name != IDLE_NAME}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> object:
    before = working()
    yield
    assert working() == before
    end_idle()
    assert not [thread for thread in threading.enumerate() if thread.name == IDLE_NAME]


def number() -> int:
    return get_replica_context().replica_id_in_sync_group


def test_replicas_run_at_the_same_time() -> None:
    meeting = threading.Barrier(4, timeout=LONG_S)  # one after the other, they would not meet
    names = MirroredStrategy("cpu:4").run(
        lambda: (meeting.wait(), threading.current_thread().name)[1]
    )
    assert list(names) == [f"mirrored-{at}" for at in range(4)]


def test_one_replica_needs_no_thread() -> None:
    assert MirroredStrategy("cpu").run(threading.current_thread) is threading.current_thread()


@pytest.mark.parametrize("what", ["all_reduce", "all_gather", "merge_call", "gradients"])
def test_what_one_raises_ends_the_others_where_they_wait(what: str) -> None:
    strategy = MirroredStrategy("cpu:3")
    model = strategy.mirror(torch.nn.Linear(1, 1))
    after = []

    def wait() -> None:
        context = get_replica_context()
        try:
            if what == "all_reduce":
                context.all_reduce("sum", 1.0)
            elif what == "all_gather":
                context.all_gather(torch.ones(1))
            elif what == "merge_call":
                context.merge_call(lambda _: None)
            else:
                strategy.all_reduce_gradients(model)
        except Exception:  # noqa: BLE001 - what is tested: it does not keep a replica going
            after.append(number())
        after.append(number())

    def trips_over_this() -> None:
        time.sleep(0.05)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as error:
        strategy.run(lambda: trips_over_this() if number() == 1 else wait())
    assert error.value.__notes__ == ["Raised in replica 1 on cpu."]
    assert "trips_over_this" in "".join(traceback.format_exception(error.value))
    assert after == []


def test_several_that_fail_are_all_named() -> None:
    begun = threading.Event()

    def body() -> None:
        if number() == 0:
            begun.set()
        begun.wait()
        while number() and "mirrored-0" in {thread.name for thread in threading.enumerate()}:
            time.sleep(0.01)  # that one is to be the first
        raise ValueError(f"number {number()}")

    with pytest.raises(ValueError, match="number 0") as error:
        MirroredStrategy("cpu:2").run(body)
    assert error.value.__notes__ == [
        "Raised in replica 0 on cpu.",
        "Also, in replica 1 on cpu: ValueError: number 1",
    ]


def test_after_an_error_the_strategy_works_on() -> None:
    strategy = MirroredStrategy("cpu:2")
    with pytest.raises(SystemExit):
        strategy.run(lambda: exit(3))
    total = strategy.run(lambda: get_replica_context().all_reduce("sum", 1))
    assert [one.item() for one in total] == [2, 2]


@pytest.mark.parametrize("first", [0, 1])
def test_replicas_that_do_not_meet_are_told_instead_of_waiting(first: int) -> None:
    def returns() -> None:
        if number() == first:
            get_replica_context().all_reduce("sum", 1)

    def elsewhere() -> None:
        context = get_replica_context()
        if number() == first:
            context.all_reduce("sum", 1)
        context.all_gather(torch.ones(1))

    strategy = MirroredStrategy("cpu:2")
    with pytest.raises(RuntimeError, match=rf"replica {first} is in all_reduce\(sum\)") as error:
        strategy.run(returns)
    assert f"replica {1 - first} has returned" in str(error.value)
    with pytest.raises(RuntimeError, match=r"do not meet: replica 0 is in .*, replica 1 is in"):
        strategy.run(elsewhere)


def test_unlike_values_are_refused_to_all() -> None:
    strategy = MirroredStrategy("cpu:2")
    with pytest.raises(ValueError, match=r"differ in shape: \(1,\), \(2,\)"):
        strategy.run(lambda: get_replica_context().all_reduce("sum", torch.ones(number() + 1)))
    with pytest.raises(ValueError, match="differ in structure"):
        strategy.run(lambda: get_replica_context().all_reduce("sum", [1.0] * (number() + 1)))


def test_an_error_in_a_merge_is_raised_once() -> None:
    calls = []

    def merge(_: MirroredStrategy) -> None:
        calls.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        MirroredStrategy("cpu:3").run(lambda: get_replica_context().merge_call(merge))
    assert calls == [1]


WORD = contextvars.ContextVar("WORD", default="unset")


def settings() -> tuple[object, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        WORD.get(),
    )


def test_the_callers_settings_are_carried_into_the_threads() -> None:
    def seen() -> list[tuple[object, ...]]:
        results = MirroredStrategy("cpu:2").run(settings)
        return [tuple(result[at] for result in results) for at in range(2)]

    assert seen() == [settings()] * 2
    with torch.no_grad():
        assert seen() == [settings()] * 2
    with torch.inference_mode():
        assert seen() == [settings()] * 2
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        assert seen() == [settings()] * 2
        product = MirroredStrategy("cpu:2").run(lambda: torch.ones(2, 2) @ torch.ones(2, 2))
        assert product[1].dtype == torch.float16
    token = WORD.set("set")
    torch.set_default_dtype(torch.float64)
    try:
        assert seen() == [settings()] * 2
        assert seen()[0][-2:] == (torch.float64, "set")
    finally:
        torch.set_default_dtype(torch.float32)
        WORD.reset(token)
    before = settings()
    MirroredStrategy("cpu").run(lambda: torch.set_grad_enabled(False))
    assert settings() == before


@pytest.mark.parametrize(("cores", "replicas", "each"), [(6, 2, 3), (2, 4, 1), (1, 2, 1)])
def test_replicas_on_the_cpu_share_its_cores(cores: int, replicas: int, each: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        strategy = MirroredStrategy(f"cpu:{replicas}")
        assert list(strategy.run(torch.get_num_threads)) == [each] * replicas
        with pytest.raises(ZeroDivisionError):
            strategy.run(lambda: 1 // 0)
        assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)


def test_ctrl_c_ends_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the signal came while the caller waits for its first replica."""
    wait = idle_threads.IdleThread.wait
    pressed = []

    def interrupted(thread: idle_threads.IdleThread) -> None:
        if not pressed:
            pressed.append(1)
            raise KeyboardInterrupt
        wait(thread)

    def body() -> None:
        if number() == 0:
            time.sleep(0.1)
        get_replica_context().all_reduce("sum", 1)
        while True:
            get_replica_context().all_reduce("sum", 1)

    strategy = MirroredStrategy("cpu:2")
    strategy.run(lambda: None)  # so that threads wait already
    monkeypatch.setattr(idle_threads.IdleThread, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        strategy.run(body)
    assert list(strategy.run(number)) == [0, 1]


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    started = []

    def refused(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="can't start"):
        MirroredStrategy("cpu:2").run(lambda: get_replica_context().all_reduce("sum", 1))


def test_many_meetings_in_a_row() -> None:
    def body() -> int:
        context, value = get_replica_context(), 1
        for _ in range(200):
            value = int(context.all_reduce("sum", value)) % 1000003
        return value

    values = MirroredStrategy("cpu:5").run(body)
    assert list(values) == [pow(5, 200, 1000003)] * 5


def test_a_run_has_the_threads_of_the_run_before() -> None:
    strategy = MirroredStrategy("cpu:3")
    first, second = (strategy.run(threading.get_ident) for _ in range(2))
    assert list(first) == list(second)
    assert len(set(first)) == 3


def test_a_run_in_a_meeting_has_threads_of_its_own() -> None:
    strategy = MirroredStrategy("cpu:2")

    def both() -> tuple[int, list[int]]:
        inner = get_replica_context().merge_call(lambda it: it.run(threading.get_ident).values)
        return threading.get_ident(), inner

    mine, others = strategy.run(both)
    assert len({*mine, *others[0], *others[1]}) == 4


def test_threads_end_when_no_run_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    end_idle()
    monkeypatch.setattr(idle_threads, "_PATIENCE_S", 0.01)
    strategy = MirroredStrategy("cpu:2")
    for _ in range(20):  # also while they think of it
        strategy.run(lambda: None)
        time.sleep(0.01)
    ended = time.monotonic() + 60
    while any(thread.name == IDLE_NAME for thread in threading.enumerate()):
        assert time.monotonic() < ended
        time.sleep(0.01)


def test_a_fork_does_not_wait_for_its_parents_threads() -> None:
    strategy = MirroredStrategy("cpu:2")
    strategy.run(lambda: None)
    child = os.fork()
    if not child:
        os._exit(0 if list(strategy.run(number)) == [0, 1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
