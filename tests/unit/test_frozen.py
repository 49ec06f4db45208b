"""Frozen dataclasses of our own: as the standard ones, but for how they are made."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace

import pytest

from hpckit.frozen import changeable, frozen


@frozen(kw_only=True)
class Pair:
    """Two, and what follows."""

    left: int
    right: str = "r"
    rest: list[int] = field(default_factory=list, repr=False, compare=False)
    total: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.left < 0:
            raise ValueError("left")


@frozen(slots=False)
class Open:
    """By position, and with a method of its own."""

    left: int
    right: int = 2

    def __repr__(self) -> str:
        return "mine"


@frozen()
class More(Open):
    """One field more."""

    third: int = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Standard:
    """As Pair."""

    left: int
    right: str = "r"
    rest: list[int] = field(default_factory=list, repr=False, compare=False)
    total: int = field(default=0, init=False)


def test_values_are_those_of_a_standard_one() -> None:
    mine, standard = Pair(left=1, rest=[1]), Standard(left=1, rest=[1])
    assert repr(mine) == repr(standard).replace("Standard", "Pair")
    assert asdict(mine) == asdict(standard)
    assert [row.name for row in fields(mine)] == [row.name for row in fields(standard)]
    assert mine == Pair(left=1) != Pair(left=2)
    assert mine != standard
    assert mine.__eq__(1) is NotImplemented
    assert hash(mine) == hash(Pair(left=1)) == hash(standard)
    assert replace(mine, right="x") == Pair(left=1, right="x")
    assert mine.rest is not Pair(left=1).rest


def test_pickles_and_copies_are_equal() -> None:
    for value in (Pair(left=1, rest=[1]), More(1, third=4)):
        for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
            assert other == value
            assert asdict(other) == asdict(value)


def test_nothing_can_be_changed() -> None:
    for value in (Pair(left=1), Open(1)):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'left'"):
            value.left = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'left'"):
            del value.left
    with pytest.raises(FrozenInstanceError):
        Pair(left=1).other = 1
    assert not hasattr(Pair(left=1), "__dict__")


def test_positions_defaults_and_methods_of_its_own() -> None:
    assert asdict(Open(1)) == {"left": 1, "right": 2}
    assert asdict(More(1, 5)) == {"left": 1, "right": 5, "third": 3}
    assert repr(Open(1)) == "mine"
    with pytest.raises(ValueError, match="left"):
        Pair(left=-1)


@pytest.mark.parametrize(
    ("kind", "args", "given", "said"),
    [
        (Pair, (), {}, "Pair needs 'left'"),
        (Pair, (1,), {}, "Pair was given 1 positional arguments"),
        (Pair, (), {"left": 1, "lfet": 2}, "Pair has no field 'lfet'"),
        (Pair, (), {"left": 1, "total": 2}, "Pair has no field 'total'"),
        (Open, (1, 2, 3), {}, "Open was given 3 positional arguments"),
        (Open, (1,), {"left": 2}, r"Open was given \['left'\] twice"),
    ],
)
def test_what_does_not_fit_is_refused(
    kind: type, args: tuple[int, ...], given: dict[str, int], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        kind(*args, **given)


@changeable()
class Changed:
    """By position, with a default of its own for each."""

    left: int
    rest: list[int] = field(default_factory=list)


def test_one_that_may_be_changed_is_as_a_standard_one() -> None:
    mine = Changed(1)
    mine.left, mine.rest = 2, [3]
    assert mine == Changed(2, [3]) != Changed(2)
    assert repr(mine) == "Changed(left=2, rest=[3])"
    assert asdict(copy.deepcopy(mine)) == {"left": 2, "rest": [3]}
    assert pickle.loads(pickle.dumps(mine)) == mine
    with pytest.raises(TypeError, match="unhashable"):
        hash(mine)
    with pytest.raises(AttributeError):
        mine.other = 1  # type: ignore[attr-defined]
