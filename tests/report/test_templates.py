"""`hpckit report --template` and `hpckit stats --template`: a group's own form of the figures."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import hpckit
from hpckit.api.lint_reports import example_documents
from hpckit.api.report import report_schema
from hpckit.api.stats import stats_schema
from hpckit.render.filters import ALL_FILTERS
from hpckit.render.reports import render_report
from hpckit.render.writers import FILTERS
from tests.conftest import Answer, write_files
from tests.report.groups import HOUR, NOW, accounts, row
from tests.report.made import make_run, write_samples
from tests.unit.made import BUILTIN

__all__ = ["accounts"]  # a fixture
pytestmark = pytest.mark.long
Cli = Callable[..., Answer]


def test_hpckits_own_mail_says_what_json_says(accounts, cli: Cli) -> None:
    accounts(
        row("11", NOW - 30 * HOUR, 10, JobName="a<b>"),
        row("12", NOW - 8 * HOUR, 3, State="FAILED", User="bob"),
    )
    words = ("report", "--since", "2d", "--all")
    whole = json.loads(cli(*words, "--json").out)
    answer = cli(*words, "--template", "mail")
    assert (answer.status, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "Dear all,"
    assert f"all users held {whole['total']['gpu_hours']:.1f} GPU-hours" in answer.out
    assert "in 2 jobs, of which 1 failed." in lines
    assert "6.0 GPU-hours were lost to jobs that failed." in lines
    table = [line.split() for line in lines if line.startswith(("  user ", "  alice ", "  bob "))]
    assert table == [
        ["user", "jobs", "GPU-hours", "busy"],
        ["alice", "1", "20.0", "-"],
        ["bob", "1", "6.0", "-"],
    ]
    assert "  12              bob              6.0 GPU-hours, FAILED" in lines
    assert hpckit.report(since="2d", everyone=True).render("mail") == answer.out
    hidden = cli(*words, "--template", "mail", "--anonymous").out
    assert "alice" not in hidden
    assert "user 1" in hidden


def test_no_name_begins_a_line_of_the_mail(accounts, cli: Cli) -> None:
    """Mailutils' mail once ran `~! COMMAND` in a mail from a pipe (CVE-2021-32749)."""
    name = "~! touch x"
    accounts(row("11", NOW - 3 * HOUR, 1, JobName=name, User=name, State="FAILED"))
    words = ("report", "--since", "2d", "--all", "--template", "mail")
    for by in ("name", "user"):
        said = cli(*words, "--by", by).out
        assert name in said
        assert not [line for line in said.splitlines() if line.startswith(("~", "From "))]


def test_a_note_of_a_job_says_what_json_says(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs")
    write_samples(folder / "samples", [[95.0] * 361, [0.0] * 361])
    answer = cli("stats", "latest", "--template", "note")
    assert (answer.status, answer.err) == (0, "")
    whole = json.loads(cli("stats", "latest", "--json").out)
    assert answer.out.startswith("## Job local-abc123, COMPLETED\n")
    busy = whole["summary"]["gpu_utilization_percent"]
    assert f"GPUs busy {busy:.0f} %" in answer.out
    assert "| n1 | 1 | 0 % |" in answer.out
    assert "**" in answer.out.partition("| n1 | 1")[2]  # the advice
    both = cli("stats", "latest", "latest", "--template", "note").out
    assert both == hpckit.stats("latest").render("note") * len(
        json.loads(cli("stats", "latest", "latest", "--json").out)["jobs"]
    )


def test_a_note_of_advice_without_an_action_says_nothing_in_its_place() -> None:
    document = dict(dict(example_documents("stats"))["all figures known"])
    document["advice"] = [{"severity": "red", "message": "m", "action": None}]
    note = render_report("note", {"stats": document}, (BUILTIN,))
    assert note.splitlines()[-1] == "- **red**: m"


def test_a_lab_changes_a_block_of_hpckits_own(accounts, cli: Cli, here: Path) -> None:
    write_files(
        here,
        {
            "templates/report/mail.txt.j2": '{% extends "report/mail.txt.j2" %}\n'
            "{% block greeting %}\nHello lab,\n\n{% endblock %}\n"
        },
    )
    accounts(row("11", NOW - 3 * HOUR, 1))
    said = cli("report", "--template", "mail").out
    assert said.startswith("Hello lab,\n\nBetween ")
    assert "2.0 GPU-hours" in said
    shown = cli("templates", "diff", "report/mail.txt.j2")
    assert "+Hello lab," in shown.out
    assert "-Dear all," in shown.out


@pytest.mark.parametrize("word", ["report", "stats"])
def test_lint_knows_documents_as_their_schemas_have_them(word: str) -> None:
    schema = report_schema() if word == "report" else stats_schema()
    for _, document in example_documents(word):
        jsonschema.validate(document, schema)


_LINTED = [
    ("{% for row in report.groups %}{{ row.utilization_percent + 1 }}{% endfor %}", "so ask `"),
    ("{{ report.total.gpu_hours_failed / report.total.gpu_hours }}", "division by zero"),
    ("{{ report.who }}{{ stats.job_id }}", "'stats' is known to `hpckit stats` alone"),
    ("{% if stats is defined %}{% else %}{{ report.whom }}{% endif %}", "'whom'"),
    ("{% if report is defined %}{% else %}{{ stats.hostz }}{% endif %}", "'hostz'"),
    ("{% if report.by == 'user' %}{{ report.whom }}{% endif %}", "'whom'"),
    ("{% if report.by != 'user' %}{{ refuse('--by user') }}{% endif %}{{ report.whom }}", "'whom'"),
    # And what is right.
    ("{{ report.total.utilization_hours[4] }} {{ report.total.wait_attempts[5] }}", ""),
    ("{{ report.total.gpu_hours / ((report.until - report.since) / 3600) }}", ""),
    ("{% if report.by != 'user' %}{{ refuse('give --by user') }}{% endif %}", ""),
    ("{% if stats is defined %}{{ stats.job_id }}{% else %}{{ report.who }}{% endif %}", ""),
    ("{% if report.total.gpu_hours_measured %}{{ report.total.utilization_percent + 1 }}{% endif %}"
     , ""),
]  # fmt: skip


@pytest.mark.parametrize(("source", "wrong"), _LINTED)
def test_lint_finds_what_breaks_and_nothing_else(
    cli: Cli, here: Path, source: str, wrong: str
) -> None:
    write_files(here, {"templates/report/x.txt.j2": source})
    answer = cli("templates", "lint", "report/x.txt.j2")
    assert answer.status == (1 if wrong else 0)
    assert wrong in answer.out


def test_the_pages_own_example_is_right(cli: Cli, here: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/report.md").read_text()
    source = page.partition("```jinja\n")[2].partition("```")[0]
    assert "report.groups" in source
    write_files(here, {"templates/report/wiki.md.j2": source})
    assert cli("templates", "lint", "report/wiki.md.j2").status == 0


def test_the_page_names_every_filter() -> None:
    page = (Path(__file__).parents[2] / "docs/report.md").read_text()
    named = page.partition("- **Filters** of Jinja's")[2].partition("\n- ")[0]
    jinjas, _, own = named.partition("And hpckit's")
    assert set(re.findall("`([a-z]+)`", jinjas)) == set(ALL_FILTERS)
    assert set(re.findall(r"`([a-z]+)(?:\(\w+\))?`", own)) == set(FILTERS)


def test_what_is_read_and_rendered_is_one_finding(cli: Cli, here: Path) -> None:
    text = "{% include 'report/none.md.j2' ignore missing %}"  # nothing is wrong with it
    write_files(here, {"templates/report/x.rtf.j2": "", "templates/report/y.txt.j2": text})
    said = cli("templates", "lint").out
    assert said.count("makes a .rtf file") == 1
    assert "none.md.j2" not in said


def test_lint_finds_a_misspelt_figure_and_one_that_may_not_be_known(cli: Cli, here: Path) -> None:
    write_files(
        here,
        {
            "templates/report/bad.txt.j2": "Hours:\n{{ report.total.gpu_hourz }}\n",
            "templates/report/sum.md.j2": "{% if report.money > 5 %}\ndear\n{% endif %}\n",
            "templates/report/fine.html.j2": '<b class="{{ report.who }}">{{ report.money }}</b>\n',
            "templates/report/name.tex.j2": "{{ repport.who }}\n",
        },
    )
    answer = cli("templates", "lint")
    assert answer.status == 1
    found = [line for line in answer.out.splitlines() if line.startswith(str(here))]
    assert len(found) == 3, answer.out
    assert any("bad.txt.j2:2: 'dict object' has no attribute 'gpu_hourz'" in row for row in found)
    assert any("sum.md.j2:1:" in row and "[no figure known]" in row for row in found)
    assert any("name.tex.j2:1: unknown variable 'repport'" in row for row in found)
    assert "report/fine.html.j2 (project): 13 documents, 0 findings" in answer.out
    assert cli("templates", "lint", "report/fine.html.j2", "report/mail.txt.j2").status == 0


def test_lint_knows_what_a_part_is_handed(cli: Cli, here: Path) -> None:
    write_files(
        here,
        {
            "templates/report/wiki.md.j2": "{% set mark = '*' %}\n"
            "{% for group in report.groups %}\n{% include 'report/row.md.j2' %}\n{% endfor %}\n",
            "templates/report/row.md.j2": "{{ mark }} {{ group.name }} {{ grupp }}\n",
            "templates/slurm/long.sh.j2": '{% extends "slurm/base.sh.j2" %}\n{% block setup %}\n'
            "{% for word in ('A', 'B') %}\n{% include 'lab-words.sh.j2' %}\n{% endfor %}\n"
            "{% endblock %}\n",
            "templates/lab-words.sh.j2": "export {{ word }}=1\n",
        },
    )
    answer = cli("templates", "lint")
    found = [line for line in answer.out.splitlines() if line.startswith(str(here))]
    assert len(found) == 1, answer.out
    assert "row.md.j2:1: unknown variable 'grupp'" in found[0]
    assert "report/row.md.j2 (" not in answer.out
    write_files(here, {"templates/report/row.md.j2": "{{ mark }} {{ group.name }}\n"})
    assert cli("templates", "lint").status == 0


def test_templates_show_and_lint_take_the_short_name(cli: Cli, here: Path) -> None:
    write_files(here, {"templates/report/wiki.html.j2": "", "templates/report/wiki.md.j2": ""})
    assert "Dear all," in cli("templates", "show", "mail").out
    assert "report/wiki.md.j2 (project)" in cli("templates", "lint", "wiki.md").out
    assert "Unknown template 'wiki'." in cli("templates", "show", "wiki").err  # it is two
    said = cli("submit", "serial", "true", "--template", "mail", "--dry-run").err
    assert "Unknown template 'mail'." in said
    assert "report/" not in said


def test_what_jinja_ends_with_a_full_stop_has_one(accounts, cli: Cli, here: Path) -> None:
    write_files(here, {"templates/report/worst.j2": "{{ report.wasteful | first }}\n"})
    accounts()
    answer = cli("report", "--template", "worst")
    assert answer.status == 2
    assert "No first item, sequence was empty. See `hpckit templates vars`." in answer.err


def test_a_wrong_template_is_one_error_before_slurm_is_asked(accounts, cli: Cli) -> None:
    asked = accounts(row("11", NOW - 3 * HOUR, 1))
    answer = cli("report", "--template", "mial")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith(
        "hpckit: error: Unknown report template 'mial'. Did you mean 'mail'?"
    )
    with pytest.raises(FileNotFoundError):
        asked()
    answer = cli("stats", "1", "--template", "")
    assert (answer.status, answer.out) == (2, "")
    assert cli("report", "--template", "mail", "--json").status == 2
    assert cli("stats", "1", "--template", "note", "--json").status == 2
    answer = cli("report", "--template", "note")
    assert answer.status == 2
    assert "'stats' is known to `hpckit stats` alone: use it there" in answer.err
