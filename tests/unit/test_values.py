"""Values from JSON that others may have written."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from hpckit.files import DamagedFileError
from hpckit.units import whole_number
from hpckit.values import Count, Moment, Within, check, rebuild


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str
    share: Annotated[float, Within(0, 1)] = 0.5


class Plan(TypedDict):
    ranks: Count
    note: NotRequired[str]


@dataclass(frozen=True, kw_only=True)
class Outer:
    count: Count
    when: Moment | None = None
    words: tuple[str, ...] = ()
    pair: tuple[int, str] = (1, "a")
    color: Color = Color.RED
    mode: Literal["a", 1] = "a"
    inner: Inner | None = None
    ids: Mapping[str, int] = field(default_factory=dict)
    flag: bool = False
    anything: Any = None


def test_a_value_comes_back_from_its_json() -> None:
    value = Outer(count=2, when=1.5, words=("a", "b"), inner=Inner(name="x"), ids={"a": 1})
    assert rebuild(Outer, asdict(value)) == value
    assert rebuild(Outer, {"count": 2, "words": ["a"], "pair": [3, "b"], "when": 4}) == Outer(
        count=2, words=("a",), pair=(3, "b"), when=4
    )


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"count": "2"}, "'count' is '2', must be a whole number"),
        ({"count": True}, "'count' is True, must be a whole number"),
        ({"count": 2.0}, "must be a whole number"),
        ({"count": -1}, "from 0"),
        ({"count": 10**39}, "many digits"),
        ({"count": [[]]}, "'count' is a list"),
        ({"when": 1e15}, "'when' is 1000000000000000.0, must be a number from 0 to 253402300799"),
        ({"when": float("nan")}, "'when' is nan"),
        ({"when": {}}, "'when' is a mapping"),
        ({"words": "abc"}, "'words' is 'abc', must be a list"),
        ({"words": [1]}, "'words' is 1, must be a text"),
        ({"pair": [1, "a", 2]}, "must be a list of 2"),
        ({"color": "blue"}, "one of red"),
        ({"color": ["red"]}, "one of red"),
        ({"mode": True}, "one of a, 1"),
        ({"inner": {"name": None}}, "'inner.name' is None, must be a text"),
        ({"inner": {"name": "x", "share": 2}}, "'inner.share' is 2, must be a number from 0 to 1"),
        ({"ids": {"a": "b"}}, "'ids.a' is 'b'"),
        ({"ids": [1]}, "'ids' is a list, must be a mapping"),
        ({"flag": 1}, "true or false"),
        ({"other": 1}, "'other' is an unknown key"),
    ],
)
def test_a_field_of_another_kind_is_named(changed: Mapping[str, Any], why: str) -> None:
    with pytest.raises(DamagedFileError, match=why):
        rebuild(Outer, {"count": 1, **changed})


@pytest.mark.parametrize("found", [None, 3, "text", [], [["count", 1]]])
def test_what_is_no_mapping_is_no_value(found: object) -> None:
    with pytest.raises(DamagedFileError, match=r"it is .* must be a mapping"):
        rebuild(Outer, found)


def test_what_is_missing_is_named_and_what_is_newer_may_be_passed_over() -> None:
    with pytest.raises(DamagedFileError, match="'count' is missing"):
        rebuild(Outer, {})
    assert rebuild(Outer, {"count": 1, "later": 2}, newer=True) == Outer(count=1)


def test_a_mapping_is_checked_and_keeps_what_it_does_not_know() -> None:
    assert rebuild(Plan, {"ranks": 4, "later": [1]}, newer=True) == {"ranks": 4, "later": [1]}
    assert check(tuple[Plan, ...], [{"ranks": 1}], "plans") == ({"ranks": 1},)
    with pytest.raises(DamagedFileError, match="'ranks' is missing"):
        rebuild(Plan, {"note": "x"})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("0" * 9000 + "3", 3),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), None),
        ("9" * 9000, None),
        ("", None),
        ("-1", None),
        ("1_0", None),
        (" 1", None),
        ("1\n", None),
        ("٣", None),
    ],
)
def test_whole_numbers_are_digits_of_a_size(text: str, number: int | None) -> None:
    assert whole_number(text) == number
    assert whole_number("11", most=10) is None
