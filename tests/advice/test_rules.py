import dataclasses
import re

import pytest

from hpckit.cli import resubmit, submit
from hpckit.job_spec.spec import OPTIONS
from hpckit.report.job_page import Page, page
from hpckit.report.terminal import Style
from hpckit.stats.advice.engine import advise
from hpckit.stats.advice.loading import check_rules
from hpckit.stats.summary.figures import Attempt, GpuUse, JobUse, NodeUse
from tests.advice.cases import CASES, Case
from tests.advice.made import BUILTIN, GIB, HOUR, RULES, SITE, cpu_job, found, gpu, job, node

NAMES = [f"{case.rule}-{case.severity}-{at}" for at, case in enumerate(CASES)]


@pytest.mark.parametrize("account", [job(), cpu_job()], ids=["gpu", "cpu"])
def test_a_job_with_nothing_wrong_gets_no_advice(account: JobUse) -> None:
    assert found(account) == {}
    assert found(account, None) == {}


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_each_rule_has_a_job_that_triggers_it(case: Case) -> None:
    advice = found(case.triggers)[case.rule]
    assert advice.severity == case.severity
    assert advice.downgraded is None
    if case.lost is not None:
        assert advice.lost_gpu_hours == pytest.approx(case.lost)
    if case.action is not None:
        assert case.action in (advice.action or "")


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_each_rule_has_a_near_miss_that_does_not(case: Case) -> None:
    assert case.rule not in found(case.misses)


def test_no_rule_is_without_its_jobs() -> None:
    assert {case.rule for case in CASES} == {rule.id for rule in RULES}


def test_every_severity_a_rule_has_is_triggered() -> None:
    possible = {(rule.id, str(level)) for rule in RULES for level in rule.levels}
    # These two need a site file that says nothing: see below.
    possible -= {("gpu-fragmentation", "info"), ("cpu-fragmentation", "info")}
    assert {(case.rule, case.severity) for case in CASES} == possible


def test_without_a_site_fragmentation_is_a_hint() -> None:
    for rule in ("gpu-fragmentation", "cpu-fragmentation"):
        account = next(case.triggers for case in reversed(CASES) if case.rule == rule)
        if rule == "cpu-fragmentation":
            account = dataclasses.replace(
                account, requested=dataclasses.replace(account.requested, cores=8)
            )
        assert found(account, None)[rule].severity == "info"
        assert re.search(r"Ask for several|Fill one", found(account, None)[rule].action or "")


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_advice_says_figures_and_nothing_is_left_open(case: Case) -> None:
    advice = found(case.triggers)[case.rule]
    for text in (advice.message, advice.evidence, advice.action):
        assert text
        assert not re.search(r"[{}]", text)
    assert "unknown" not in advice.message + (advice.action or "")
    assert re.search(r"\d|State|QOS|UUID|Reasons", advice.evidence)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_commands_use_options_that_there_are(case: Case) -> None:
    known = {"resubmit": resubmit.resubmit, "submit": submit.submit}
    for command in re.findall(
        r"`hpckit (\w+ [^`]*)`", found(case.triggers)[case.rule].action or ""
    ):
        name, *words = command.split()
        if name in known:
            options = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
            fields = {row.word for row in OPTIONS.values()}
            assert options <= fields | set(known[name].__annotations__)
        assert "'" not in command


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_command_stands_in_one_line_of_the_page(case: Case, width: int) -> None:
    for account in (case.triggers, dataclasses.replace(case.triggers, submitted_by_hpckit=False)):
        advice = found(account)[case.rule]
        commands = re.findall("`[^`]*`", advice.action or "")
        text = page(Page(job=account, advice=[advice]), Style(width=width))
        assert [one for one in commands if one not in text] == []
        assert max(map(len, text.splitlines())) <= width
        assert " ".join((advice.action or "").split()) in " ".join(text.split())


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_other_peoples_jobs_get_sbatch_lines(case: Case) -> None:
    theirs = dataclasses.replace(case.triggers, submitted_by_hpckit=False)
    action = found(theirs)[case.rule].action
    assert action
    assert "hpckit resubmit" not in action


def test_more_time_is_not_advised_where_it_cannot_help() -> None:
    for idle, limit, expected in (
        (1799.0, 2 * HOUR, "--time 03:00:00"),
        (1800.0, 2 * HOUR, "Look at the end of the logs"),
        (0.0, 40 * HOUR, "--time 2-00:00:00"),
        (0.0, 48 * HOUR, "Look at the end of the logs"),
    ):
        account = job(
            gpus=(gpu(idle_tail_s=idle),), state="TIMEOUT", requested={"time_limit_s": limit}
        )
        assert expected in (found(account)["timeout"].action or "")


def test_a_suggestion_is_never_more_than_what_was_asked_for() -> None:
    account = job(gpus=(gpu(idle_tail_s=600.0),), requested={"time_limit_s": 2 * HOUR})
    assert "--time" not in (found(account)["idle-tail"].action or "")
    account = job(nodes=(node(memory_efficiency_percent=99.0, memory_peak_bytes=500 * GIB),))
    assert "--mem-gb" not in (found(account)["memory-near-limit"].action or "")


def test_what_is_not_known_is_no_advice() -> None:
    gpus = tuple(GpuUse(host="c1", index=at) for at in range(2))
    nothing = JobUse(job_id="1", per_gpu=gpus, per_node=(NodeUse(host="c1"), NodeUse(host="c2")))
    attempted = dataclasses.replace(nothing, attempts=(Attempt(restart=0),))
    for account in (JobUse(job_id="1"), nothing, attempted):
        for rule in RULES:
            assert advise(account, (dataclasses.replace(rule, silences=()),), SITE) == ()


# Being well used excuses many cores, and few samples excuse much memory, but only where that is
# known: accounting has no coverage.
EXEMPTIONS = {
    ("cores-per-gpu", "cpu_efficiency_percent"),
    ("host-memory-per-gpu", "coverage_percent"),
    ("memory-over-allocated", "coverage_percent"),
}


def figures_of(account: object, skip: tuple[str, ...]) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(account)  # type: ignore[arg-type]
        if field.name not in skip and getattr(account, field.name) is not None
    ]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_near_miss_with_a_figure_less_is_still_none(case: Case) -> None:
    account = case.misses
    for part, at in (("summary", None), ("requested", None), ("per_gpu", 0), ("per_node", 0)):
        rows = getattr(account, part)
        row = rows if at is None else (rows[0] if rows else None)
        if row is None:
            continue
        for name in figures_of(row, ("host", "mig", "lost", "throttle_reasons")):
            less = dataclasses.replace(row, **{name: None})
            changed = less if at is None else (less, *rows[1:])
            advice = found(dataclasses.replace(account, **{part: changed})).get(case.rule)
            assert advice is None or (case.rule, name) in EXEMPTIONS, name


@pytest.mark.parametrize(
    ("ids", "file"),
    [
        ({"job_id": "4711", "raw_id": "4711"}, "slurm-4711.out"),
        ({"job_id": "4711.0", "raw_id": "4711"}, "slurm-4711.out"),
        # %A_%a of sbatch(1): a task's own number stands in no name.
        ({"job_id": "4711_3", "raw_id": "4715", "array_job_id": "4711"}, "slurm-4711_3.out"),
        ({"job_id": "4711_3.batch", "raw_id": "4715", "array_job_id": "4711"}, "slurm-4711_3.out"),
        ({"job_id": "4711+1", "raw_id": "4712"}, "slurm-4711.out"),
    ],
)
def test_a_failed_job_of_others_names_the_file_that_slurm_has_written(
    ids: dict[str, str], file: str
) -> None:
    account = job(state="FAILED", submitted_by_hpckit=False, **ids)
    assert f"default is {file} in" in (found(account)["failed"].action or "")


def test_the_shipped_rules_have_no_problem() -> None:
    assert check_rules(BUILTIN) == ()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_names_its_sources_and_says_why(rule) -> None:
    assert rule.sources
    assert len(rule.why) > 40
    assert rule.off is None
