import itertools
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpckit.errors import ConfigError, Location
from hpckit.stats.advice.expressions import Expression
from hpckit.stats.advice.functions import FUNCTIONS, Kind, percent, shown, size, visible
from hpckit.stats.advice.parsing import fill_in, read_expression
from tests.conftest import examples

PLACE = Location(Path("rule.yaml"), 7)
NAMES = {
    "a": Kind.NUMBER,
    "b": Kind.NUMBER,
    "t": Kind.TRUTH,
    "u": Kind.TRUTH,
    "word": Kind.TEXT,
    "words": Kind.LIST,
    "job": {"elapsed_s": Kind.NUMBER, "summary": {"cpu_efficiency_percent": Kind.NUMBER}},
}
VALUES = {"a": 3, "b": 4.5, "t": True, "word": "x", "words": ("x", "y"), "job": {"elapsed_s": 60}}


def read(text: str, kind: Kind | None = None) -> Expression:
    return read_expression(text, NAMES, place=PLACE, what="'when' of rule 'r'", kind=kind)


def value(text: str, **changes: object) -> object:
    return read(text).evaluate(VALUES | changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("7 // 2 + 7 % 4", 6),
        ("-a", -3),
        ("(a + b) / 2", 3.75),
        ("a < b <= 4.5", True),
        ("a < b < 4", False),
        ("a == 3 and b != 3", True),
        ("not t or a > 1", True),
        ("word in ['x', 'y']", True),
        ("word in words", True),
        ("word not in ('x',)", False),
        ("word == 'x'", True),
        ("a if t else b", 3),
        ("min(a, b, 1)", 1),
        ("max(a, b)", 4.5),
        ("ceil(b) + floor(b) + round(b) + abs(-1)", 14),
        ("len(words)", 2),
        ("job.elapsed_s / 60", 1),
        ("first(job.summary.cpu_efficiency_percent, None, 5)", 5),
        ("known(a) and not known(job.summary.cpu_efficiency_percent)", True),
        ("percent(43.4)", "43 %"),
        ("duration(3605)", "1 h 00 min"),
        ("bytes(1536)", "1.5 KiB"),
        ("hours(3.42)", "3.4"),
        ("slurm_time(90061)", "1-01:02:00"),
    ],
)
def test_expressions_mean_what_they_mean_in_python(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a / 0", "a // 0", "a % 0", "a / 0 > 1", "not (a / 0 > 1)",
        "job.summary.cpu_efficiency_percent", "a + job.summary.cpu_efficiency_percent",
        "a if u else b", "min(a, job.summary.cpu_efficiency_percent)",
        "1e29 * 1e29", "percent(a / 0)", "None", "None + 1", "a == None", "u in [True]",
        "a < job.summary.cpu_efficiency_percent < b", "clock(1e29)", "clock(1e12)",
        "first(None, a / 0)",
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_unknown(text: str) -> None:
    assert value(text) is None


@pytest.mark.parametrize(("t", "u"), list(itertools.product([True, False, None], repeat=2)))
def test_logic_is_kleenes(t: bool | None, u: bool | None) -> None:
    known = {True: 1.0, False: 0.0, None: 0.5}
    truth = {1.0: True, 0.0: False, 0.5: None}
    assert value("t and u", t=t, u=u) is truth[min(known[t], known[u])]
    assert value("t or u", t=t, u=u) is truth[max(known[t], known[u])]
    assert value("not t", t=t) is truth[1 - known[t]]
    assert value("sure(t)", t=t) is (t is True)


def test_a_chain_with_an_unknown_can_still_be_false() -> None:
    assert value("5 < a < job.summary.cpu_efficiency_percent") is False


def test_a_value_of_another_kind_is_unknown() -> None:
    for wrong in ("3", True, (1,), [1], {}, object(), float("nan"), float("inf")):
        assert value("a + 1", a=wrong) is None
    assert value("job.elapsed_s", job=None) is None
    assert value("job.elapsed_s", job={"elapsed_s": {}}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("().__class__", "a dot may only follow a name"),
        ("a.__class__", "a is a number and has no .__class__"),
        ("job.__class__", "no 'job.__class__'"),
        ("job.sumary.cpu_efficiency_percent", "no 'job.sumary'. Did you mean 'summary'?"),
        ("job.summary", "has parts: choose one"),
        ("__import__('os')", "no function '__import__'"),
        ("eval('1')", "no function 'eval'"),
        ("min.__call__(a, b)", "Call is not part"),
        ("(lambda: 1)()", "Call is not part"),
        ("lambda: 1", "Lambda is not part"),
        ("[x for x in words]", "ListComp is not part"),
        ("[a]", "a list may contain only"),
        ("[[1]]", "a list may contain only"),
        ("{x for x in words}", "SetComp is not part"),
        ("{'a': 1}", "Dict is not part"),
        ("f'{a}'", "JoinedStr is not part"),
        ("9**9**9", "BinOp is not part"),
        ("1 << 9", "BinOp is not part"),
        ("'a' * 1000000000", "an operand of arithmetic is a text"),
        ("'a' + 'b'", "an operand of arithmetic is a text"),
        ("[1] * 1000000000", "an operand of arithmetic is a list"),
        ("~a", "UnaryOp is not part"),
        ("words[0]", "Subscript is not part"),
        ("(a := 3)", "NamedExpr is not part"),
        ("await a", "not an expression|Await is not part"),
        ("min(*words)", "Starred is not part"),
        ("min(a, b, key=a)", "Call is not part"),
        ("1j", "complex"),
        ("b'x'", "bytes"),
        ("...", "ellipsis"),
        ("1e400", "float"),
        ("9" * 400, "int"),
        ("a is None", "is and is not"),
        ("a < 'x'", "an operand of < or > is a text"),
        ("a == 'x'", "mixes number and text"),
        ("a == t", "mixes"),
        ("a in b", "the operand after in is a number"),
        ("words in words", "a list cannot be in a list"),
        ("a and t", "an operand of and/or is a number"),
        ("not a", "the operand of not is a number"),
        ("t + 1", "an operand of arithmetic is a truth"),
        ("a if b else a", "the condition after if is a number"),
        ("a if t else word", "a choice mixes"),
        ("first(a, word)", "mixes"),
        ("min(a)", "takes at least 2"),
        ("round(a, b)", r"takes 1 argument"),
        ("percent(word)", "is a text, must be a number"),
        ("len(word)", "is a text, must be a list"),
        ("elapsed", "no 'elapsed'"),
        ("", "not an expression"),
        ("a b", "not an expression"),
        ("a; b", "not an expression"),
        ("a\x00", "not an expression"),
        ("'\\d' == word", "not an expression"),
        ("import os", "not an expression"),
        ("(" * 300 + ")" * 300, "not an expression"),
        ("-" * 400 + "a", "nested more than|not an expression"),
        ("+".join("a" * 200), "nested more than"),
        ("not " * 200 + "t", "nested more than|not an expression"),
        ("a" * 10_000_000, "at most 1000 characters, not 10000000"),
        ("(" * 10_000_000, "at most 1000"),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_the_rest_of_python_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(text)
    assert str(caught.value).startswith("rule.yaml:7: 'when' of rule 'r': ")
    assert len(str(caught.value)) < 600


def test_an_expression_must_give_what_its_place_needs() -> None:
    with pytest.raises(ConfigError, match="it is a number, must be a truth"):
        read("a + 1", Kind.TRUTH)
    assert read("None", Kind.TRUTH).evaluate({}) is None


def test_names_used_and_thresholds_filled_in() -> None:
    expression = read("a < job.elapsed_s and word in words")
    assert expression.names == {"a", "job", "word", "words"}
    assert fill_in(expression, {"a": 300, "words": ("x", "y")}) == (
        "300 < job.elapsed_s and word in ('x', 'y')"
    )


# Texts that look like the language, from its own words; most are refused, some are accepted.
WORDS = st.sampled_from(
    ["a", "b", "t", "u", "word", "words", "job.elapsed_s",
     "job.summary.cpu_efficiency_percent", "None", "True", "0", "1", "1e30", "2.5",
     "'x'", "[1, 2]", "+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", "==", "!=",
     "in", "not", "and", "or", "if", "else", "(", ")", ",", ".", "~",
     "lambda", *(f"{name}(" for name in FUNCTIONS)]
)  # fmt: skip
NUMBERS = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["a", "b", "0", "1e30", "2.5", "None", "job.elapsed_s"]),
        st.tuples(NUMBERS, st.sampled_from(["+", "-", "*", "/", "//", "%"]), NUMBERS).map(
            lambda row: f"({' '.join(row)})"
        ),
        st.tuples(st.sampled_from(["min", "max", "first"]), NUMBERS, NUMBERS).map(
            lambda row: f"{row[0]}({row[1]}, {row[2]})"
        ),
        st.tuples(st.sampled_from(["round", "ceil", "floor", "abs"]), NUMBERS).map(
            lambda row: f"{row[0]}({row[1]})"
        ),
        st.tuples(NUMBERS, TRUTHS, NUMBERS).map(
            lambda row: f"({row[0]} if {row[1]} else {row[2]})"
        ),
    )
)
TRUTHS = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["t", "u", "True", "None", "word in words"]),
        st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS).map(
            lambda row: f"({' '.join(row)})"
        ),
        st.tuples(TRUTHS, st.sampled_from(["and", "or", "=="]), TRUTHS).map(
            lambda row: f"({' '.join(row)})"
        ),
        TRUTHS.map(lambda text: f"(not {text})"),
        NUMBERS.map(lambda text: f"known({text})"),
    )
)
TEXTS = st.tuples(
    st.sampled_from(["percent", "duration", "hours", "bytes", "clock", "slurm_time"]), NUMBERS
).map(lambda row: f"{row[0]}({row[1]})")
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.tuples(st.text())
)


# What once might have raised: numbers that overflow, are no number or divide by nothing, nesting,
# values of another kind, and texts that Python's own parser refuses in odd ways.
HUGE = ("1e30", "(1e30 * 1e30)", "(a // 0)", "(a % 0)", "(1e30 - None)", "round((a / 0))")


@pytest.mark.long
@given(
    st.one_of(
        st.lists(WORDS, max_size=25).map(" ".join), st.text(max_size=60), NUMBERS, TRUTHS, TEXTS
    ),
    st.dictionaries(st.sampled_from(sorted(NAMES)), SCALARS),
)
@settings(max_examples=examples(200))
@example(f"max({', '.join(HUGE)})", {"a": float("inf")})
@example(f"first({', '.join(HUGE)})", {"a": float("nan")})
@example("percent((a * 1e30))", {"a": 10**400})
@example("duration((0 - a))", {"a": 1e300})
@example("word in words and a < b", {"word": ("x",), "words": "x", "a": True, "b": ""})
@example("(" * 60, {})
@example("a\0b", {})
def test_nothing_but_config_error_ever_comes_of_any_text(text: str, values: dict) -> None:
    try:
        expression = read(text)
    except ConfigError:
        return
    result = expression.evaluate(values)
    assert result is None or isinstance(result, bool | int | float | str | tuple)
    assert len(shown(result)) < 200


def test_each_part_is_evaluated_once() -> None:
    nested = "t"
    for _ in range(25):
        nested = f"(u == {nested} == u)"
    # Twice on each of 25 levels would be 33 million times: the test would not end.
    read(nested).evaluate(VALUES | {"u": True})


@given(st.text())
def test_texts_of_a_job_become_printable(text: str) -> None:
    assert visible(text).isprintable() or set(visible(text)) & set("\u3000\u2000\xa0\u1680\u202f")
    assert len(visible(text)) <= 101


def test_values_become_text() -> None:
    assert [shown(row) for row in (None, True, False, 3, 3.0, 2.54, 0.123, ("a", 1), ())] == [
        "unknown", "yes", "no", "3", "3", "2.5", "0.12", "a, 1", "none"
    ]  # fmt: skip
    assert [percent(row) for row in (0, 0.04, 9.94, 10, 99.6)] == [
        "0 %", "0.0 %", "9.9 %", "10 %", "100 %"
    ]  # fmt: skip
    assert [size(row) for row in (1, 2048, 3 * 2**40, 2**60)] == [
        "1 B", "2.0 KiB", "3.0 TiB", "1048576.0 TiB"
    ]  # fmt: skip
    assert visible("a\x1b[1m\u202e\u2028\n") == "a\\x1b[1m\\u202e\\u2028\\n"
