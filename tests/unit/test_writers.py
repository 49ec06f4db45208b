"""Values in a report's template: each kind of file has letters that it takes for more."""

import csv
import html
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest

from hpckit.errors import TemplateError
from hpckit.render.reports import (
    find_report_template,
    render_report,
    report_templates,
    shortest_names,
)
from tests.unit.made import collection

ODD = 'it\'s "100 %" <b>&{x}_$y\\z [a](u) |c| #1 ~^ \x1b[31m\ntwo ü'


def written(tmp_path: Path, kind: str, source: str, **report: Any) -> str:
    lab = collection(tmp_path, "lab", {f"templates/report/t{kind}.j2": source})
    return render_report("t", {"report": report}, (lab,))


def refusal(tmp_path: Path, source: str, kind: str = ".txt", **report: Any) -> str:
    with pytest.raises(TemplateError) as error:
        written(tmp_path, kind, source, **report)
    return str(error.value)


@pytest.mark.parametrize("kind", ["", ".txt"])
def test_plain_text_is_as_it_is_but_for_control_characters(tmp_path: Path, kind: str) -> None:
    said = written(tmp_path, kind, "\"{{ report.who }}\" '{{ report.who }}'\n", who=ODD)
    shown = ODD.replace("\x1b", "\\x1b").replace("\n", "\\n")
    assert said == f"\"{shown}\" '{shown}'\n"


@pytest.mark.parametrize("kind", [".html", ".xml"])
def test_html_reads_back_the_text(tmp_path: Path, kind: str) -> None:
    said = written(tmp_path, kind, '<p title="{{ report.who }}">', who=ODD)
    inside = said.removeprefix('<p title="').removesuffix('">')
    assert not set(inside) & set("<>\"'\x1b\n")
    assert html.unescape(inside) == ODD.replace("\x1b", "\\x1b").replace("\n", "\\n")


def test_markdown_and_tex_take_no_letter_for_an_order(tmp_path: Path) -> None:
    assert written(tmp_path, ".md", "{{ report.who }}", who="[a](u) <b> `x` _y_ | \\") == (
        "\\[a\\]\\(u\\) \\<b\\> \\`x\\` \\_y\\_ \\| \\\\"
    )
    (tmp_path / "lab/templates/report/t.md.j2").unlink()
    assert written(
        tmp_path, ".tex", "{{ report.who }}", who="\\input{/etc/passwd} 5 % $x_1^2$ ~"
    ) == (
        "\\textbackslash{}input\\{/etc/passwd\\} 5 \\% \\$x\\_1\\textasciicircum{}2\\$ "
        "\\textasciitilde{}"
    )
    # A row of a table may begin with it, and the row before has ended with \\.
    assert written(tmp_path, ".tex", "{{ report.who }}", who="[9cm] *") == "{[}9cm{]} {*}"
    (tmp_path / "lab/templates/report/t.tex.j2").unlink()
    # Formulas of GitLab, Jupyter and pandoc.
    assert written(tmp_path, ".md", "{{ report.who }}", who="$x^2$") == "\\$x\\^2\\$"


@pytest.mark.parametrize(
    ("text", "shown"),
    [(None, "\N{EN DASH}"),
     ("- x", "\\- x"), ("+", "\\+"), ("1. x", "1\\. x"), ("===", "\\==="), ("---", "\\---"),
     ("a - b", "a - b"), ("12.5", "12.5"), ("-5", "-5"), ("x. y", "x. y")],
)  # fmt: skip
def test_no_name_begins_a_list_or_a_heading(tmp_path: Path, text: str, shown: str) -> None:
    assert written(tmp_path, ".md", "{{ report.who }}", who=text) == shown


def test_csv_and_json_are_read_back(tmp_path: Path) -> None:
    names = ("who", "jobs", "money", "formula", "notes")
    source = ",".join(f"{{{{ report.{name} }}}}" for name in names)
    values = {"who": 'a "b", c', "jobs": 3, "money": None, "formula": "=1+1"}
    said = written(tmp_path, ".csv", source, **values, notes=["a", "b,=1+1", None])
    cells = ['a "b", c', "3", "", "'=1+1", "a, b,=1+1, -"]
    assert list(csv.reader(io.StringIO(said))) == [cells]
    (tmp_path / "lab/templates/report/t.csv.j2").unlink()
    said = written(
        tmp_path, ".json", '{"text": {{ report.who }}, "all": {{ report }}}', who=ODD, x=None
    )
    assert json.loads(said) == {"text": ODD, "all": {"who": ODD, "x": None}}


def test_what_is_not_known_is_a_dash_through_every_filter(tmp_path: Path) -> None:
    names = ("hours", "percent", "number(2)", "duration", "bytes", "day", "moment")
    source = "".join(f"{{{{ report.x | {name} }}}} " for name in names)
    assert written(tmp_path, ".txt", source + "{{ report.x }}", x=None) == "- " * len(names) + "-"


def test_figures_are_written_as_on_hpckits_own_pages(tmp_path: Path) -> None:
    new_year = time.mktime((1971, 1, 1, 0, 0, 0, 0, 0, -1))  # days are local ones
    source = (
        "{{ report.h | hours }} {{ report.p | percent }} {{ report.n | number(2) }} "
        "{{ report.s | duration }} {{ report.b | bytes }} {{ report.d | day }} "
        "{{ report.l }} {{ report.yes }} {{ report.rows | sum(attribute='n') }} "
        "{{ report.rows | map(attribute='n') | join('+') }}"
    )
    said = written(
        tmp_path, ".txt", source, h=1234.5, p=87.4, n=1234.5, s=125, b=3 << 30, d=new_year,
        l=["a", 1], yes=True, rows=[{"n": 1}, {"n": 2}],
    )  # fmt: skip
    assert said == "1,234 87 % 1,234.50 2 min 05 s 3.0 GiB 1971-01-01 a, 1 yes 3 1+2"


def test_words_of_jinjas_own_do_what_its_pages_say(tmp_path: Path) -> None:
    source = (
        "{% for row in report.rows | reverse %}{{ row.n }}{{ ', ' if not loop.last }}{% endfor %} "
        "{{ 1.25 | round(1) }} {{ 1234.5 | number(digits=1) }} {{ report.rows | reverse | length }}"
    )
    assert written(tmp_path, ".txt", source, rows=[{"n": 1}, {"n": 2}]) == "2, 1 1.2 1,234.5 2"


def test_commas_of_json_stand_in_the_template(tmp_path: Path) -> None:
    source = (
        '{"rows": [{% for row in report.rows %}{{ row }}{% if not loop.last %},{% endif %}'
        "{% endfor %}]}"
    )
    rows = [{"name": ODD}, {"name": None}]
    assert json.loads(written(tmp_path, ".json", source, rows=rows)) == {"rows": rows}


@pytest.mark.parametrize("rows", [2, pytest.param(5000, marks=pytest.mark.long)])
def test_a_large_report_may_be_worked_on_as_a_small_one(tmp_path: Path, rows: int) -> None:
    """An account's jobs by name, or a job's GPUs, are thousands of rows."""
    groups = [
        {"name": f"user {at}", **{f"some_figure_{key}": float(at) for key in range(20)}}
        for at in range(rows)
    ]
    source = (
        "{{ report.groups | length }}, {{ report.groups[:2] | length }}: "
        "{% for row in report.groups | sort(attribute='some_figure_1', reverse=true) %}"
        "{% for key in row %}{{ '.' if loop.first }}{% endfor %}{% endfor %}"
    )
    assert written(tmp_path, ".txt", source, groups=groups) == f"{rows}, 2: {'.' * rows}"


def test_columns_stay_where_they_are(tmp_path: Path) -> None:
    source = "{{ report.name | left(6) }}{{ report.n | right(5) }}|"
    for name, cell in (("ab", "ab    "), ("abcdefgh", "abcd… "), ("中中中", "中中  ")):
        expected = cell if name != "中中中" else "中中… "
        assert written(tmp_path, ".txt", source, name=name, n=42) == f"{expected}   42|"
    assert written(tmp_path, ".txt", source, name="ab", n=1234567) == "ab    1234567|"


def test_what_is_wrong_is_said_with_its_line(tmp_path: Path) -> None:
    assert "t.txt.j2:2: 'dict object' has no attribute 'hourz'" in refusal(
        tmp_path, "\n{{ report.hourz }}\n", hours=1
    )
    assert "'stats' is known to `hpckit stats` alone" in refusal(tmp_path, "{{ stats.job_id }}")
    assert "type dict cannot be printed" in refusal(tmp_path, "{{ report }}")


@pytest.mark.parametrize(
    "source",
    ["{{ report.who|safe }}", "{{ report.who|rewritten_text }}",
     "{{ [report.who]|map('rewritten text')|join }}", "{{ ''.__class__ }}", "{{ 'x' * 10**9 }}",
     "{{ report.who | left(10**9) | length }}{% for i in [1] * 60000 %}{% endfor %}",
     "{% autoescape false %}{{ report.who }}{% endautoescape %}",
     "{{ 5 | round(0 - 10**9) }}{{ 1.5 | round(10**9, 'ceil') }}{{ ([[1]] * 60000) | sum([]) }}",
     "{{ ([[1]] * 60000) | sum(start=[]) | length }}", "{{ 10**17 | moment }}",
     "{{ (10**17) | day }}", "{{ report | map('length') | list }}",
     "{% macro m() %}x{% endmacro %}"
     "{{ [{'a': m()}, {'a': report.who}] | map(attribute='a') | join }}"],
)  # fmt: skip
def test_the_sandbox_holds(tmp_path: Path, source: str) -> None:
    assert refusal(tmp_path, source, who="x")


def test_names(tmp_path: Path) -> None:
    files = ("mail.txt", "wiki.md", "wiki.html", "a.rtf", "B.RTF", "")
    lab = collection(tmp_path, "lab", {f"templates/report/{name}.j2": "" for name in files})
    assert {*shortest_names(report_templates((lab,)))} == {
        "mail", "wiki.md", "wiki.html", "a", "B", "",
    }  # fmt: skip
    for name in ("mail", "mail.txt", "report/mail.txt.j2"):
        assert find_report_template(name, (lab,)).name == "report/mail.txt.j2"
    for name, why in {
        "wiki": "Several report templates are called 'wiki'. Give wiki.html or wiki.md.",
        "mial": "Unknown report template 'mial'. Did you mean 'mail'?",
        "a": "makes a .rtf file, and how names are written safely in one is not known here",
        "B": "rename it, as to report/B.txt.j2.",
    }.items():
        with pytest.raises(TemplateError) as error:
            find_report_template(name, (lab,))
        assert why in str(error.value)
