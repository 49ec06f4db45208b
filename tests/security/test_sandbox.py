"""Templates that try to leave the sandbox, or to use the login node up: one clear line each."""

import subprocess
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpckit.errors import TemplateError
from hpckit.render import render
from hpckit.render.limits import MAX_SOURCE_BYTES, MAX_STEPS, MAX_VALUE, MAX_WORK
from hpckit.render.quoting import quoted_expression, shell_word
from tests.conftest import examples
from tests.patience import LONG_S
from tests.unit.made import BUILTIN, collection

ITEMS = list(range(100))
# What a template is given: values of every kind, as a plan has them.
CONTEXT = {"x": "abc", "n": 7, "d": {"a": "b"}, "l": ITEMS, "rows": [{"a": ITEMS}], "path": "/etc"}


def refusal(tmp_path, source: str, **more: str) -> str:
    files = {"templates/slurm/t.sh.j2": source, **{f"templates/{k}.j2": v for k, v in more.items()}}
    lab = collection(tmp_path, "lab", files)
    with pytest.raises(TemplateError) as error:
        render("t", CONTEXT, (lab, BUILTIN))
    said = str(error.value)
    assert len(said.splitlines()) == 1
    assert len(said) < 500
    return said


ESCAPES = [
    "{{ x.__class__ }}",
    "{{ x['__class__'] }}",
    "{{ x | attr('__init__') }}",
    "{{ ().__class__.__mro__[1].__subclasses__() }}",
    "{{ n.__class__.__base__ }}",
    "{{ n.real.numerator.__class__ }}",
    "{{ '{0.__class__}'.format(x) }}",
    "{{ '{0.__class__}'['format'](x) }}",
    "{{ '{a.__class__}'.format_map(d) }}",
    "{{ '{:>9}'.format(x) }}",
    "{{ '%s' | format(x) }}",
    "{{ refuse.__globals__ }}",
    "{{ refuse['__globals__'] }}",
    "{{ refuse.__wrapped__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ self.__init__.__globals__ }}",
    "{{ _self.env }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ joiner('x').__class__ }}",
    "{{ namespace(a=1).__class__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ dict.__base__ }}",
    "{{ range(3) }}",
    "{{ environment.loader }}",
    "{{ config }}",
    "{{ request }}",
    "{{ d.pop('a') }}",
    "{{ d.setdefault('b', 1) }}",
    "{{ d.fromkeys(l) }}",
    "{{ l.append(1) }}",
    "{{ l.copy() }}",
    "{{ x.encode() }}",
    "{{ n.to_bytes(9, 'big') }}",
    "{{ x.maketrans('a', 'b') }}",
    "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{% for a in l %}{{ loop.__init__ }}{% endfor %}",
    "{% for a in l %}{{ loop._iterable }}{% endfor %}",
    "{% include '../../../../etc/passwd' %}",
    "{% include '/etc/passwd' %}",
    "{% include path ~ '/passwd' %}",
    "{% include 'lab:../hpckit.yaml' %}",
    "{% import '/etc/passwd' as p %}",
    "{% from '../../secret' import x %}",
    "{% extends '/etc/passwd' %}",
    "{% include 'slurm/t.sh.j2\x00' %}",
    "{% autoescape false %}{{ x }}{% endautoescape %}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_an_escape_is_refused_in_one_line_that_names_the_template(tmp_path, source) -> None:
    (tmp_path / "secret").write_text("{% set x = 'the secret' %}")
    said = refusal(tmp_path, source)
    assert "t.sh.j2" in said or "points outside the collections" in said
    assert "secret is" not in said


DOUBLED = "{% set a = 'x' %}" + "{% set a = a ~ a %}" * 40
NESTED = "{% set b = [1] %}" + "{% set b = [b, b] %}" * 40
TUPLES = NESTED.replace("[b, b]", "(b, b)")
DICTS = NESTED.replace("[b, b]", "{'a': b, 'b': b}")
OFTEN = "".join(f"{{% for a{n} in l %}}" for n in range(6))
ENDS = "{% endfor %}" * 6
LARGE = "{% set a = 'x' * 99999 %}"
VALUE = f"a value of more than {MAX_VALUE} letters and items"
WORK = f"more than {MAX_WORK} letters and items processed"
ROUNDS = f"more than {MAX_STEPS} loop rounds, calls and includes"
BOMBS = [
    ("{% for a in range(10 ** 9) %}{% endfor %}", "'range' is undefined"),
    (OFTEN + ENDS, ROUNDS),
    (OFTEN + "x" + ENDS, ROUNDS),
    ("{% set y %}" + OFTEN + "x" + ENDS + "{% endset %}", ROUNDS),
    ("{% for a in l recursive %}{{ loop(l) }}{% endfor %}", "recursion"),
    ("{% for a in l | select %}" * 4 + "{% endfor %}" * 4, ROUNDS),
    ("{{ 'x' * 10 ** 9 }}", VALUE),
    ("{{ 10 ** 9 * 'x' }}", VALUE),
    ("{% set a = 'x' * 199998 %}{{ a * 199998 }}", VALUE),
    ("{{ [0] * 10 ** 9 }}", VALUE),
    ("{{ (l * 999) * 999 }}", VALUE),
    (DOUBLED, VALUE),
    (DOUBLED.replace("~", "+"), VALUE),
    (NESTED + "{{ b }}", VALUE),
    (NESTED + "{{ b == b }}", VALUE),
    (TUPLES + "{{ b }}", VALUE),
    (DICTS + "{{ b }}", VALUE),
    (LARGE + "{{ [a, a, a, a] | join }}", VALUE),
    (LARGE + "{{ (l * 99) | join(a) }}", VALUE),
    (LARGE + "{{ a | replace('x', a) }}", VALUE),
    (LARGE + "{{ a | replace('', a) }}", VALUE),
    (LARGE + "{{ '%s%s%s%s' % (a, a, a, a) }}", VALUE),
    (LARGE + "{{ ('%(a)s' * 999) % {'a': a} }}", VALUE),
    ("{{ '%999999999d' % 1 }}", "the largest width is 999"),
    ("{{ '%*d' % (999999999, 1) }}", "the largest width is 999"),
    ("{{ '{:>999999999}'.format(1) }}", "'format'"),
    ("{{ 'x'.center(10 ** 9) }}", "'center'"),
    ("{{ 'x'.ljust(10 ** 9) }}", "'ljust'"),
    ("{{ '1'.zfill(10 ** 9) }}", "'zfill'"),
    ("{{ '\t'.expandtabs(10 ** 9) }}", "'expandtabs'"),
    ("{{ x.join(l) }}", "'join'"),
    ("{{ n.to_bytes(10 ** 9, 'big') }}", "'to_bytes'"),
    ("{{ x | center(10 ** 9) }}", "No filter named 'center'"),
    ("{{ x | indent(10 ** 9) }}", "No filter named 'indent'"),
    ("{{ l | batch(1, 'x') }}", "No filter named 'batch'"),
    ("{{ l | random }}", "No filter named 'random'"),
    ("{{ l | tojson }}", "No filter named 'tojson'"),
    ("{{ l | map('upper') }}", "No filter named 'map'"),
    ("{{ l | sum }}", "No filter named 'sum'"),
    ("{{ x | wordwrap(1) }}", "No filter named 'wordwrap'"),
    ("{{ n ** (10 ** 6) }}", "a number of more than 4096 bits"),
    ("{{ n ** (n ** (n ** n)) }}", "a number of more than 4096 bits"),
    ("{{ (0 - n) ** (10 ** 6) }}", "a number of more than 4096 bits"),
    ("{% set a = n ** 999 %}{{ a * a * a }}", "a number of more than 4096 bits"),
    ("{{ ('f' * 99999) | int(base=16) // 3 }}", "a number of more than 4096 bits"),
    ("{{ 'x' * 99990 }}" * 11, "the text is larger than 1000000 bytes"),
    ("{% set y %}{% for a in l %}{{ 'x' * 99999 }}{% endfor %}{% endset %}", "the text is large"),
    ("{% macro m() %}" + "x" * 9999 + "{% endmacro %}{% set y %}{% for a in l %}{% for b in l %}"
     "{{ m() }}{% endfor %}{% endfor %}{% endset %}", "the text is larger"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    ("{% macro m(k) %}{% if k %}{{ m(k - 1) }}{{ m(k - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
     ROUNDS),
    ("{% block a %}{{ self.a() }}{% endblock %}", "recursion"),
    ("{% include 'slurm/t.sh.j2' %}", "extends itself"),
    ("".join(f"{{% set a{n} = 'x' * 99990 %}}" for n in range(60)), WORK),
    (LARGE + "{% for b in l %}{% if a == a ~ '' %}{% endif %}{% endfor %}", WORK),
    (LARGE + "{% for b in l %}{% if 'y' in a %}{% endif %}{% endfor %}", WORK),
    (LARGE + "{% for b in l %}{% if a is lower %}{% endif %}{% endfor %}", WORK),
    (LARGE + "{% for b in l %}{% if a[1:] %}{% endif %}{% endfor %}", WORK),
    (LARGE + "{% for b in l %}{% if a.count('y') %}{% endif %}{% endfor %}", WORK),
    ("{{ " + "(" * 500 + "1" + ")" * 500 + " }}", "recursion"),
    ("{{ " + "[" * 500 + "1" + "]" * 500 + " }}", "recursion"),
    ("{{ " + "1 + " * 20000 + "1 }}", "recursion"),
    ("{% for a in l %}" * 30 + "{% endfor %}" * 30, "too many"),
    ("{% if x %}" * 150 + "{% endif %}" * 150, "too many"),
    ("{{ " + "9" * 5000 + " }}", "4300 digits"),
    ("{{" * (MAX_SOURCE_BYTES // 2), "recursion"),
    ("{#" * (MAX_SOURCE_BYTES // 2), "t.sh.j2:1"),
    ("{%" * (MAX_SOURCE_BYTES // 2), "t.sh.j2:1"),
    ("x" * (MAX_SOURCE_BYTES + 1), f"longer than {MAX_SOURCE_BYTES} bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "limit"), BOMBS, ids=[row[0][:40] for row in BOMBS])
def test_a_bomb_is_refused_in_one_line_with_its_limit(tmp_path, source, limit) -> None:
    said = refusal(tmp_path, source)
    assert "t.sh.j2" in said
    assert limit in said


def test_templates_that_double_each_other_are_refused(tmp_path) -> None:
    chain = {f"t{n}": f"{{% include 't{n + 1}.j2' %}}" * 2 for n in range(40)}
    said = refusal(tmp_path, "{% include 't0.j2' %}", **chain, t40="x")
    assert ROUNDS in said


def test_templates_that_extend_each_other_in_a_circle_are_refused(tmp_path) -> None:
    circle = {"a": "{% extends 'b.j2' %}", "b": "{% extends 'a.j2' %}"}
    assert "recursion" in refusal(tmp_path, "{% extends 'a.j2' %}", **circle)


def test_a_legitimate_template_notices_nothing(tmp_path) -> None:
    source = (
        "{% macro say(a) %}echo {{ a }}{% endmacro %}"
        "{% for row in rows %}{% for a in row.a if a is odd and a % 3 == 0 %}"
        "{{ say('%03d' % a) }} {{ loop.index }}/{{ loop.length }}\n{% endfor %}{% endfor %}"
        "{% for k, v in d.items() %}{{ k ~ '=' ~ v }} {{ d.get('z', 'none') }}\n{% endfor %}"
        "{% if x.startswith('a') and x.upper() in ['ABC'] %}{{ x.split('b') }}\n{% endif %}"
        "{{ (l * 3) | unique | list | length }} {{ l[2:4] }} {{ [x, 'b c'] | join('-') }}\n"
        "{% set many %}{% for a in l %}{% for b in l %}.{% endfor %}{% endfor %}{% endset %}"
        "{{ many }}\n"
    )
    lab = collection(tmp_path, "lab", {"templates/slurm/t.sh.j2": source})
    lines = render("t", CONTEXT, (lab, BUILTIN)).text.splitlines()
    assert lines[0] == "echo 003 1/17"
    assert lines[17] == "a=b none"
    assert lines[18] == "a c"
    assert lines[19] == "100 2 3 'abc-b c'"
    assert lines[20] == "." * 10_000


OBJECTS = [
    "{{ refuse }}", "{{ [refuse] }}", "{{ [[refuse]] | first }}", "{{ refuse ~ '' }}",
    "{{ 'a' ~ refuse }}", "{{ '%s' % refuse }}", "{{ '%s' % [refuse] }}", "{{ refuse | lower }}",
    "{{ [refuse] | join }}", "{{ [x, refuse] | join(',') }}", "{{ x | replace('a', refuse) }}",
    "{{ none | default(refuse) }}", "{{ y | default(refuse) }}", "{{ {'a': refuse} | first }}",
    "{{ x.split }}", "{{ d.items }}", "{{ d.items() }}", "{{ d }}", "{{ [d] }}", "{{ rows }}",
    "{{ l | select }}", "{{ l | unique }}", "{{ [none] }}", "{{ self }}", "{{ self | lower }}",
    "{% block a %}{% endblock %}{{ self.a }}", "{% block a %}{% endblock %}{{ self.a ~ '' }}",
    "{% for a in l %}{{ loop }}{% endfor %}", "{% for a in l %}{{ loop ~ 'x' }}{% endfor %}",
    "{% for a in l %}{{ loop.cycle }}{% endfor %}", "{% for a in l %}{{ [loop] }}{% endfor %}",
    "{% macro m() %}{% endmacro %}{{ m }}", "{% macro m() %}{% endmacro %}{{ m | trim }}",
    "{% macro m() %}{{ caller }}{% endmacro %}{% call m() %}{% endcall %}",
    "{% set y = refuse %}{{ y }}", "{% import 'other.j2' as o %}{{ o }}",
    "{% import 'other.j2' as o %}{{ o ~ '' }}", "{% include refuse %}", "{{ l[refuse] }}",
    "{{ d.get('b', refuse) }}",
]  # fmt: skip


@pytest.mark.parametrize("source", OBJECTS)
def test_only_text_numbers_and_lists_are_printed(tmp_path, source) -> None:
    """Whatever else Python would print with its type and its address in memory."""
    said = refusal(tmp_path, source, other="x")
    assert "t.sh.j2" in said
    assert " at 0x" not in said


@pytest.mark.parametrize(
    "source",
    ["cat <<E.F\n{{ x }}\nE.F\n", "cat <<\\EOF\n{{ x }}\nEOF\n", "cat << 'A-B'\n{{ x }}\nA-B\n"],
)
def test_a_here_document_of_any_name_is_seen(source: str) -> None:
    assert quoted_expression(source) == (2, "{{ x }}")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("cat <<EOF\nEOFX\n{{ x }}\nEOF\n", 3),
        ("cat <<EOF\nEOF \n{{ x }}\nEOF\n", 3),
        ("cat <<EOF\n EOF\n{{ x }}\nEOF\n", 3),
        ("cat <<EOF\n\tEOF\n{{ x }}\nEOF\n", 3),
        ("cat <<-EOF\n\tEOFX\n{{ x }}\n\tEOF\n", 3),
        ("cat <<'E F'\n{{ x }}\nE F\n", 2),
        ("cat <<E'O'\"F\"\nE\n{{ x }}\nEOF\n", 3),
        ("cat <<EOF!\nEOF\n{{ x }}\nEOF!\n", 3),
        ("cat <<A <<B\nA\n{{ x }}\nB\n", 3),
        ("cat <<EOF '{{ x }}'\nEOF\n", 1),
        ('cat <<EOF | tr a "{{ x }}"\nEOF\n', 1),
        ("cat <<EOF\na\\\nEOF\n{{ x }}\nEOF\n", 4),
        ("cat <<{{ x }}\n", 1),
        ("echo $(cat <<EOF\n{{ x }}\nEOF\n)", 2),
        ('echo "$(cat <<EOF\n"\n{{ x }}\nEOF\n)"', 3),
        ('echo "$(echo "{{ x }}")"', 1),
        ('echo "$(echo "$(echo "{{ x }}")")"', 1),
        ('echo "${a:-"{{ x }}"}"', 1),
        ("echo \"$(echo ')' {{ x }})\"", 1),
        ('echo "`echo "{{ x }}"`"', 1),
        ("echo $'a\\'{{ x }}'", 1),
        ("echo \\{{ x }}'", 1),
        ('echo "$(# {{ x }}\n)"', 1),
        ("echo `echo \"a\" '{{ x }}'`", 1),
    ],
)
def test_quotes_in_quotes_and_ends_of_here_documents_are_bashs(source: str, line: int) -> None:
    assert quoted_expression(source) == (line, "{{ x }}")


@pytest.mark.parametrize(
    "source",
    [
        "cat <<EOF\nEOFX\nEOF\necho {{ x }}\n",
        "cat <<-EOF\n\ta\n\tEOF\necho {{ x }}\n",
        "cat <<'E F'\na\nE F\necho {{ x }}\n",
        "cat <<A <<B\nit's\nA\nit's\nB\necho {{ x }}\n",
        "cat <<EOF > {{ x }}\nit's\nEOF\n",
        "cat <<EOF\nEOF\necho {{ x }}\n",
        'echo "$(echo "a")" {{ x }}',
        'echo "${a:-"b"}" {{ x }}',
        "echo $'a\\'b' {{ x }}",
        "echo `echo 'a'` {{ x }}",
        'case "$(echo ")")" in a) echo {{ x }} ;; esac',
    ],
)
def test_what_stands_after_them_is_free(source: str) -> None:
    assert quoted_expression(source) is None


PIECES = ["'", '"', "`", "$(", ")", "${a:-", "}", "\\", "$'", " ", "\n", "a", "EOF", "#", ";",
          "echo ", "cat <<EOF\n", "cat <<-'EOF'\n", "\nEOF\n", "{{ x }}", "{{ x }}"]  # fmt: skip


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=14))
def test_what_passes_holds_in_bash(pieces: list[str]) -> None:
    """bash runs no command of a value, whatever quotes, commands and here-documents are about."""
    source = "".join(["echo ", *pieces])
    if "{{ x }}" not in source or quoted_expression(source):
        return
    script = source.replace("{{ x }}", shell_word("'$(echo ran >&3)`echo ran >&3`"))
    argv = ["bash", "-c", "exec 3>&1 >/dev/null 2>&1 </dev/null\n" + script]
    with tempfile.TemporaryDirectory() as folder:  # some of them write files
        said = subprocess.run(argv, capture_output=True, timeout=LONG_S, check=False, cwd=folder)
    assert b"ran" not in said.stdout, source


def test_a_here_string_is_no_here_document() -> None:
    assert quoted_expression("cat <<<word\necho {{ x }}\nword\n") is None
