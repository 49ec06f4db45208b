import json
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hpckit.collections import Collection
from hpckit.errors import Location, TemplateError
from hpckit.render import find_template, list_templates, render
from hpckit.render.quoting import ShellCode, shell_word
from tests.conftest import examples, write_files
from tests.patience import LONG_S
from tests.unit.made import BUILTIN, collection

hypothesis_here = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60)
)


def rendered(tmp_path: Path, source: str, **context: Any) -> str:
    lab = collection(tmp_path, "lab", {"templates/slurm/t.sh.j2": source})
    return render("t", context, (lab,)).text


def refusal(tmp_path: Path, source: str, **context: Any) -> str:
    with pytest.raises(TemplateError) as error:
        rendered(tmp_path, source, **context)
    return str(error.value)


def bash(script: str) -> bytes:
    return subprocess.run(
        ["bash"], input=script.encode(), capture_output=True, check=True, timeout=LONG_S
    ).stdout


# --- Quoting ---


def is_printable(text: str) -> bool:
    """Unicode's controls, unassigned letters and line breaks are out; its spaces are not."""
    kinds = {letter: unicodedata.category(letter) for letter in text if letter != "\t"}
    return not any(kind[0] == "C" or kind in ("Zl", "Zp") for kind in kinds.values())


nasty = st.text() | st.lists(
    st.sampled_from(
        ["$(id)", "`id`", "'", '"', "\\", "$HOME", "\n", ";", "&", "|", "#", "!", "*", "~", " ",
         "\t", "{{ x }}", "{% if %}", "-n", "é", "%s", "<", ">",
         "EOF", "\r", "\x1b", "\0", "=", "&amp;"]
    )
).map("".join)  # fmt: skip


@hypothesis_here
@example(["\u1680", "\xa0", "\u3000"])
@example(["'", "a'b", "$(touch pwned)", "", "-n", "&lt;", "\t"])
@given(st.lists(nasty.filter(is_printable), max_size=15))
def test_bash_reads_back_exactly_what_was_rendered(tmp_path: Path, values: list[str]) -> None:
    source = "{% for x in values %}\nv={{ x }}\nprintf '%s\\0' \"$v\"\n{% endfor %}\n"
    said = bash(rendered(tmp_path, source, values=values))
    assert said.split(b"\0")[:-1] == [value.encode() for value in values]


@hypothesis_here
@given(st.lists(nasty.filter(is_printable), min_size=1, max_size=8))
def test_a_list_becomes_its_words(tmp_path: Path, values: list[str]) -> None:
    said = bash(rendered(tmp_path, "printf '%s\\0' {{ values }}\n", values=values))
    assert said.split(b"\0")[:-1] == [value.encode() for value in values]


@hypothesis_here
@given(nasty.filter(lambda text: not is_printable(text)))
def test_control_characters_are_refused(tmp_path: Path, value: str) -> None:
    assert "control character" in refusal(tmp_path, "{{ x }}\n", x=value)


@hypothesis_here
@given(nasty.filter(is_printable))
def test_a_value_passes_macros_blocks_and_set_quoted_once(tmp_path: Path, value: str) -> None:
    source = (
        "{% macro m(a) %}v={{ a }}{% endmacro %}{{ m(x) }}\n"
        "printf '%s\\0' \"$v\"\n"
        "{% set y %}v={{ x }}{% endset %}{{ y }}\n"
        "printf '%s\\0' \"$v\"\n"
        "{% for a in [x] | unique %}v={{ a | trim }}{% endfor %}\n"
    )
    said = bash(rendered(tmp_path, source, x=value))
    assert said.split(b"\0")[:2] == [value.encode()] * 2


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("plain", "plain"),
        ("a b", "'a b'"),
        ("it's", "'it'\"'\"'s'"),
        ("", "''"),
        (5, "5"),
        (True, "True"),
        (["a b", 3], "'a b' 3"),
        (ShellCode("umask 027; x"), "umask 027; x"),
    ],
)
def test_words_are_quoted_only_where_they_must_be(value: object, word: str) -> None:
    assert shell_word(value) == word


@pytest.mark.parametrize("source", ["{{ 'a b' }}", "{{ 'a' ~ ' b' }}", "{{ 'a' + ' b' }}"])
def test_text_in_the_template_is_quoted_too(tmp_path: Path, source: str) -> None:
    assert rendered(tmp_path, source) == "'a b'"


ATTACK = "$(echo pwned)"


@pytest.mark.parametrize(
    "source",
    [
        "{{ m() ~ x }}",
        "{{ m() + x }}",
        "{{ x + m() }}",
        "{{ [m(), x] | join }}",
        "{{ m() | replace('k', x) }}",
        "{{ m().replace('k', x) }}",
        "{{ m().join([x, x]) }}",
        "{{ m().format(x) }}",
        "{{ m() % x }}",
        "{{ m()[:0] + x }}",
        "{{ q(x)[1:] }}",
        '{{ q(x) | trim("\'") }}',
        '{{ q(x).strip("\'") }}',
        "{{ x | default(m(), true) }}",
        "{{ '<' ~ x }}",
        "{% autoescape false %}{{ m() ~ x }}{% endautoescape %}",
        '{% filter trim("\'") %}{{ x }}{% endfilter %}',
        "{% for a in m() %}{{ a }}{% endfor %}{{ x }}",
        "{% set y %}{{ x }}{% endset %}{{ y | replace(\"'\", '') }}",
        "{{ [[m()]] | first | join(x) }}",
        "{{ [{'k': m()}, {'k': x}] | join(attribute='k') }}",
        "{{ {'k': q(x)}.values() | first | trim(\"'\") }}",
    ],
)
def test_no_expression_unquotes_a_value(tmp_path: Path, source: str) -> None:
    macros = "{% macro m() %}ok{% endmacro %}{% macro q(a) %}{{ a }}{% endmacro %}"
    try:
        script = rendered(tmp_path, f"{macros}echo {source}\n", x=ATTACK)
    except TemplateError:
        return
    assert b"echo pwned" in bash(script)  # as words, not as what they do


# --- Finding templates ---


def test_a_short_name_is_a_script_template() -> None:
    assert find_template("base", (BUILTIN,)).name == "slurm/base.sh.j2"
    assert find_template("modules/lmod.sh.j2", (BUILTIN,)).name == "modules/lmod.sh.j2"
    with pytest.raises(TemplateError, match=r"Unknown template 'bsae'. Did you mean 'base'"):
        find_template("bsae", (BUILTIN,))


def test_every_shipped_template_is_listed() -> None:
    assert {"slurm/base.sh.j2", "modules/none.sh.j2"} <= set(list_templates((BUILTIN,)))


NAME = "templates/slurm/t.sh.j2"


def stack(tmp_path: Path, *sources: str) -> tuple[Collection, ...]:
    return tuple(
        collection(tmp_path, f"c{number}", {NAME: source}) for number, source in enumerate(sources)
    )


def test_extending_ones_own_name_gets_the_next_collection_down(tmp_path: Path) -> None:
    found = stack(
        tmp_path,
        "{% extends 'slurm/t.sh.j2' %}{% block a %}top {{ super() }}{% endblock %}",
        "{% extends 'slurm/t.sh.j2' %}{% block a %}middle {{ super() }}{% endblock %}",
        "[{% block a %}bottom {{ x }}{% endblock %}]",
    )
    made = render("t", {"x": "a b"}, found)
    assert made.text == "[top middle bottom 'a b']"
    assert [row.collection.name for row in made.templates] == ["c0", "c1", "c2"]


def test_a_collections_name_reaches_into_it(tmp_path: Path) -> None:
    found = stack(tmp_path, "{% include 'c2:slurm/t.sh.j2' %}", "second", "third {{ x }}")
    assert render("t", {"x": 1}, found).text == "third 1"


def test_a_bare_name_inside_a_named_template_starts_at_the_top(tmp_path: Path) -> None:
    top = collection(tmp_path, "top", {"templates/part.sh.j2": "mine"})
    low = collection(
        tmp_path, "low", {"templates/part.sh.j2": "theirs", NAME: "{% include 'part.sh.j2' %}"}
    )
    assert render("t", {}, (top, low)).text == "mine"


def test_one_block_of_the_shipped_template_can_be_replaced(tmp_path: Path) -> None:
    source = "{% extends 'slurm/base.sh.j2' %}{% block launch %}echo {{ nodes }}{% endblock %}"
    lab = collection(tmp_path, "lab", {NAME: source})
    names = {"header": [], "env": {}, "setup": [], "rendezvous": ["r"], "nodes": 2,
             "modules": {"template": "modules/none.sh.j2", "load": [], "use": []},
             "environment": {"template": "environments/none.sh.j2"}, "python": ["p"],
             "notify": None, "code_dir": None, "warned": None}  # fmt: skip
    made = render("t", names, (lab, BUILTIN))
    assert made.text.rstrip().endswith("echo 2")
    assert "set -euo pipefail" in made.text


ROOT = "[{% block a %}a {% block b %}b{% endblock %}{% endblock %}]"
MIDDLE = "{% extends 'slurm/t.sh.j2' %}{% block b %}{% block c %}c{% endblock %}{% endblock %}"
OWN = "{% extends 'slurm/t.sh.j2' %}"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (OWN + "{% block c %}mine{% endblock %}", "[a mine]"),  # of any of those it extends
        (OWN + "{% block b %}{% block d %}mine{% endblock %}{% endblock %}", "[a mine]"),
        (OWN + " \n{# a word #}{% set y = 1 %}{% macro m() %}m{% endmacro %}\n", "[a c]"),
        ("before {% block c %}mine{% endblock %}" + OWN, "before mine[a mine]"),
        ("{% if x %}" + OWN + "{% endif %}{% block e %}e{% endblock %}", "[a c]"),
        ("{% extends ['slurm/t.sh.j2', 'x'][0] %}{% block e %}e{% endblock %}", "[a c]"),
    ],
)
def test_what_a_template_may_say_beside_blocks(tmp_path: Path, source: str, text: str) -> None:
    assert render("t", {"x": 1}, stack(tmp_path, source, MIDDLE, ROOT)).text == text


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        (OWN + "\n{% block cc %}mine{% endblock %}", 2, "block 'cc' is left out.*mean 'c'"),
        (OWN + "{% if x %}\n{% block e %}e{% endblock %}{% endif %}", 2, "block 'e'.*: a, b, c"),
        (OWN + "\n\nexport X=1\nY=1\n", 3, "'export X=1' is left out, because it stands in no"),
        (OWN + "\n{{ x }}", 2, "what is printed here is left out"),
        (OWN + "{% for y in [x] %}\nset {{ y }}\n{% endfor %}", 2, "'set' is left out"),
        (OWN + "\n{% include 'slurm/t.sh.j2' %}", 2, "what is printed here is left out"),
    ],
)
def test_what_jinja_would_leave_out_is_refused(
    tmp_path: Path, source: str, line: int, says: str
) -> None:
    found = stack(tmp_path, source, MIDDLE, ROOT)
    with pytest.raises(TemplateError, match=says) as refused:
        render("t", {"x": 1}, found)
    assert refused.value.at == Location(found[0].path / NAME, line)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{% extends 'slurm/t.sh.j2' %}", "extends itself, but no later collection"),
        (
            "{% include 'slurm/gone.sh.j2' %}",
            "needs 'slurm/gone.sh.j2', but no collection has this",
        ),
        ("{% include 'lab:slurm/gone.sh.j2' %}", "needs 'lab:slurm/gone.sh.j2'"),
        ("{% include 'leb:slurm/t.sh.j2' %}", "Unknown collection 'leb'. Did you mean 'lab'?"),
        ("{% include '../x.j2' %}", "points outside the collections"),
        ("{% include 'lab:/etc/passwd' %}", "points outside the collections"),
    ],
)
def test_templates_that_cannot_be_found_are_named(tmp_path: Path, source: str, says: str) -> None:
    assert says in refusal(tmp_path, source)


def test_templates_that_include_each_other_end_in_an_error(tmp_path: Path) -> None:
    files = {NAME: "{% include 'a.j2' %}", "templates/a.j2": "{% include 'b.j2' %}",
             "templates/b.j2": "{% include 'a.j2' %}"}  # fmt: skip
    with pytest.raises(TemplateError, match=r"one another in a circle\.$"):
        render("t", {}, (collection(tmp_path, "lab", files),))


# --- Strict and sandboxed ---


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        ("a\n{{ nope }}", 2, "'nope' is undefined"),
        ("a\n\n{% if nope %}{% endif %}", 3, "'nope' is undefined"),
        ("{% for a in nope %}{% endfor %}", 1, "'nope' is undefined"),
        ("{{ x.nope }}", 1, "no attribute 'nope'"),
        ("{{ d.nope }}", 1, "no attribute 'nope'"),
        ("\n{{ d['a'].nope }}", 2, "no attribute 'nope'"),
        ("{{ nope | length }}", 1, "'nope' is undefined"),
        ("\n\n{{ x | nope }}", 3, "No filter named 'nope'. Known: "),
        ("{{ x | lenght }}", 1, "No filter named 'lenght'. Did you mean 'length'?"),
        ("{{ x is nope }}", 1, "No test named 'nope'"),
        ("\n{% nope %}", 2, "unknown tag 'nope'"),
        ("\n{{ x", 2, "unexpected end"),
        ("\n{% if x %}", 2, "endif"),
        ("\n{{ none }}", 2, "this value is none and cannot be printed"),
        ("\n{{ refuse('not here') }}", None, "The template refuses: not here"),
    ],
)
def test_a_faulty_template_is_named_with_its_line(tmp_path, source, line, word) -> None:
    said = refusal(tmp_path, source, x="a", d={"a": "b"})
    assert word in said
    assert line is None or f"t.sh.j2:{line}: " in said


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__'] }}",
        "{{ x | attr('__class__') }}",
        "{{ refuse.__globals__ }}",
        "{{ refuse.__code__ }}",
        "{{ self.__init__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ cycler }}",
        "{{ lipsum() }}",
        "{{ joiner.__init__.__globals__ }}",
        "{{ namespace }}",
        "{{ d.update({'a': 1}) }}",
        "{{ l.append(1) }}",
        "{{ '%s' | format(x) }}",
        "{{ '{0.__class__}'.format(x) }}",
        "{% for a in range(10 ** 8) %}{% endfor %}",
        "{{ 'x' * (10 ** 9) }}",
        "{{ 10 ** (10 ** 7) }}",
        "{{ x | safe }}",
        "{{ x | e }}",
        "{{ x | xmlattr }}",
        "{% import 'os' as os %}",
        "{% do x %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ '%(a)s' % {} }}",
        "{{ 1e999 }}",
        "{% for a in l %}{% for b in l %}{% for c in l %}{{ 'y' * 999 }}{% endfor %}{% endfor %}"
        "{% endfor %}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(tmp_path: Path, source: str) -> None:
    said = refusal(tmp_path, source, x="a", d={}, l=list(range(100)))
    assert "t.sh.j2" in said


def test_values_are_not_changed_by_html_rules(tmp_path: Path) -> None:
    assert rendered(tmp_path, "{{ x }}", x="a&b<c>") == "'a&b<c>'"


COUNTED = """
import collections, json, sys
from pathlib import Path
seen = collections.Counter()
def count(event, args):
    if event in ("open", "os.scandir", "os.listdir") and isinstance(args[0], (str, Path)):
        seen[str(args[0])] += str(args[0]).startswith(sys.argv[1])
from hpckit.collections.search import describe
from hpckit.render import render
lab = describe(Path(sys.argv[1]), "group")
import jinja2
sys.addaudithook(count)
text = render("all", {}, (lab,)).text
print(json.dumps([text, {path: n for path, n in seen.items() if n}]))
"""


def test_a_rendering_reads_each_folder_and_each_template_once(tmp_path: Path) -> None:
    parts = {f"templates/parts/{n}.sh.j2": f"part {n}\n" for n in range(5)}
    body = "".join(f'{{% include "parts/{n}.sh.j2" %}}\n' for n in (*range(5), *range(5)))
    write_files(tmp_path, {"templates/slurm/all.sh.j2": body, **parts})
    ran = subprocess.run(
        [sys.executable, "-c", COUNTED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    text, seen = json.loads(ran.stdout)
    assert text.count("part 4") == 2
    assert max(seen.values()) == 1, seen
    assert len([path for path in seen if path.endswith(".j2")]) == 6
