"""How ranks find rank zero: without torch's long pause after a look that came too early."""

import os
import socket
from collections.abc import Callable, Iterator

import pytest
import torch

from hpckit.parallel import ranks

pytestmark = pytest.mark.torch


@pytest.fixture
def door() -> Iterator[socket.socket]:
    """Return a socket with a port of its own, where nobody listens yet."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        yield found


class Clock:
    """A clock that goes on while somebody sleeps, and only then."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.on_pause: dict[int, Callable[[], object]] = {}

    def monotonic(self) -> float:
        return sum(self.pauses)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause.get(len(self.pauses), lambda: None)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(ranks, "time", found)
    return found


def be_rank(monkeypatch: pytest.MonkeyPatch, rank: int, port: object) -> None:
    variables = {"RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_rank_goes_on_as_soon_as_rank_zero_listens(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, door: socket.socket
) -> None:
    clock.on_pause[3] = door.listen
    be_rank(monkeypatch, 1, door.getsockname()[1])
    ranks._await_rank_zero()
    assert len(clock.pauses) == 3
    assert sum(clock.pauses) < 0.05  # torch alone would wait a quarter of a second at the least


def test_where_nobody_ever_listens_the_wait_is_left_to_torch(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, door: socket.socket
) -> None:
    be_rank(monkeypatch, 1, door.getsockname()[1])
    ranks._await_rank_zero()
    assert 10 <= sum(clock.pauses) < 10.25
    assert max(clock.pauses) == 0.25


@pytest.mark.parametrize("port", ["", "none", "99999999"])
def test_a_port_that_cannot_be_is_for_torch_to_refuse(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, port: str
) -> None:
    be_rank(monkeypatch, 1, port)
    ranks._await_rank_zero()
    assert sum(clock.pauses) < 10.25


@pytest.mark.parametrize("missing", ["RANK", "MASTER_ADDR", "MASTER_PORT", None])
def test_rank_zero_and_who_knows_no_address_look_nowhere(
    monkeypatch: pytest.MonkeyPatch, door: socket.socket, missing: str | None
) -> None:
    looks: list[object] = []
    monkeypatch.setattr(ranks.socket, "create_connection", lambda *words, **_: looks.append(words))
    be_rank(monkeypatch, 1 if missing else 0, door.getsockname()[1])
    if missing:
        monkeypatch.delenv(missing)
    ranks._await_rank_zero()
    assert not looks


NONBLOCKING = "TORCH_NCCL_USE_COMM_NONBLOCKING"


@pytest.mark.parametrize(
    ("backend", "device", "own", "told"),
    [
        ("nccl", torch.device("cuda", 0), None, "0"),
        ("nccl", torch.device("cuda", 0), "1", "1"),
        ("gloo", torch.device("cuda", 0), None, None),
        ("gloo", torch.device("cpu"), None, None),
    ],
)
def test_nccl_connects_at_once_so_that_its_errors_come_from_the_meeting(
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    device: torch.device,
    own: str | None,
    told: str | None,
) -> None:
    """Torch 2.6 would do that later, and two ranks of one GPU would end with a traceback."""
    seen: list[object] = []

    def meet(name: str, *, device_id: torch.device | None) -> None:
        seen.append((name, device_id, os.environ.get(NONBLOCKING)))

    monkeypatch.setattr(ranks.dist, "init_process_group", meet)
    monkeypatch.setenv(NONBLOCKING, own or "")
    if own is None:
        monkeypatch.delenv(NONBLOCKING)
    ranks.meet(ranks.Rank(rank=0, world_size=2, device=device, host="a", asked_backend=backend))
    assert seen == [(backend, device if backend == "nccl" else None, told)]
