from pathlib import Path

import pytest

from hpckit.errors import ConfigError, Location
from hpckit.stats.advice.expressions import Text
from hpckit.stats.advice.functions import Kind
from hpckit.stats.advice.parsing import read_text

PLACE = Location(Path("rule.yaml"), 9)
NAMES = {"host": Kind.TEXT, "hosts": Kind.LIST, "n": Kind.NUMBER, "s": Kind.NUMBER}


def read(text: str) -> Text:
    return read_text(text, NAMES, place=PLACE, what="'message' of rule 'r'")


def test_expressions_in_a_text_are_rendered() -> None:
    text = read("GPU {n} on {host}: {percent(s)},\n  {{n}} {{{n}")
    assert text.render({"host": "c1", "n": 3, "s": 43.2}) == "GPU 3 on c1: 43 %, {n} {3"
    assert text.names == {"n", "host", "s"}


def test_what_is_unknown_reads_so() -> None:
    text = read("{n} of {percent(s)}")
    assert text.render({}) == "unknown of unknown"
    assert text.render_if_known({"n": 1}) is None
    assert text.render_if_known({"n": 1, "s": 2}) == "1 of 2.0 %"


def test_texts_in_a_command_are_quoted_for_the_shell() -> None:
    text = read("On {host}: `x --exclude {host} --list {hosts} -n {n}`, not {host}")
    values = {"host": "a b`$(id)", "hosts": ("x", "y;z"), "n": 3}
    assert text.render(values) == (
        "On a b`$(id): `x --exclude 'a b`$(id)' --list 'x, y;z' -n 3`, not a b`$(id)"
    )


def test_control_characters_are_made_visible() -> None:
    assert read("{host}").render({"host": "\x1b]0;x\x07\r\n"}) == "\\x1b]0;x\\x07\\r\\n"


def test_a_long_text_is_cut() -> None:
    assert len(read("{host}").render({"host": "x" * 10_000})) == 101


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a } b", "a brace has no partner"),
        ("a { b", "a brace has no partner"),
        ("{}", "not an expression"),
        ("{hst}", "no 'hst'. Did you mean 'host'"),
        ("{n!r}", "not an expression"),
        ("{n:>99999999}", "not an expression"),
        ("{n.__class__}", "has no .__class__"),
        ("x" * 5000, "at most 4000 characters"),
    ],
    ids=lambda text: text[:20],
)
def test_a_wrong_text_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(text)
    assert str(caught.value).startswith("rule.yaml:9: 'message' of rule 'r': ")
