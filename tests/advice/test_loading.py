import dataclasses
from pathlib import Path

import pytest

from hpckit.collections import Collection
from hpckit.errors import ConfigError, RequestError
from hpckit.sites import Site
from hpckit.stats.advice.engine import advise
from hpckit.stats.advice.explaining import explain
from hpckit.stats.advice.loading import (
    advised,
    check_rules,
    find_rule,
    in_order,
    list_rules,
    load_rules,
)
from hpckit.stats.advice.rules import Rule
from tests.advice.made import BUILTIN, RULES, SITE, gpu, job, one_rule
from tests.conftest import write_files

RULE = """\
title: A rule
why: Because it is so.
variables: {limit_percent: 15, strict: true, kinds: [a, 1]}
figures:
  half_percent: limit_percent / 2
when: strict and not (job.qos in kinds)
levels:
  red: job.summary.gpu_utilization_percent < half_percent
  yellow: job.summary.gpu_utilization_percent < limit_percent
message: "Only {percent(job.summary.gpu_utilization_percent)}."
evidence: "Less than {limit_percent} %."
sources: [somebody]
"""


def lab(tmp_path: Path, files: dict[str, str]) -> tuple[Collection, ...]:
    write_files(tmp_path / "lab" / "templates", files)
    return (Collection(name="lab", path=tmp_path / "lab", origin="group"), *BUILTIN)


def own(tmp_path: Path, text: str = RULE) -> Rule:
    places = lab(tmp_path, {"advice/mine.yaml": text})
    return find_rule("mine", load_rules(places[:1]))


def severity(rule: Rule, utilization: float) -> str | None:
    account = job(gpus=(gpu(utilization_percent=utilization),))
    return next((str(item.severity) for item in advise(account, (rule,))), None)


def test_a_group_adds_a_rule(tmp_path: Path) -> None:
    rule = own(tmp_path)
    assert [severity(rule, value) for value in (7.4, 7.5, 14.9, 15.0)] == [
        "red", "yellow", "yellow", None
    ]  # fmt: skip


def test_a_groups_file_takes_the_place_of_ours(tmp_path: Path) -> None:
    places = lab(tmp_path, {"advice/timeout.yaml": RULE})
    rules = load_rules(places)
    assert len(rules) == len(RULES)
    rule = find_rule("timeout", rules)
    assert rule.title == "A rule"
    assert list_rules(places)["timeout"].shadows == BUILTIN
    assert f"From lab (group): {tmp_path}/lab/templates/advice/timeout.yaml" in explain(rule)
    assert "shadows built-in: " in explain(rule)
    account = job(state="TIMEOUT")
    assert "timeout" in {item.id for item in advise(account, RULES)}
    assert "timeout" not in {item.id for item in advise(account, rules)}


def test_a_file_switches_a_rule_off(tmp_path: Path) -> None:
    rule = own(tmp_path, RULE + "enabled: false\n")
    assert severity(rule, 1.0) is None
    assert f"switched off by enabled: false in {tmp_path}" in explain(rule)


def test_a_site_changes_thresholds_and_switches_off() -> None:
    account = job(gpus=(gpu(utilization_percent=20.0, throttled_percent=50.0),))
    site = dataclasses.replace(
        SITE, advice={"low-gpu-utilization": {"red_percent": 20}, "throttling": None}
    )
    found = {item.id: item.severity for item in advise(account, load_rules(BUILTIN, site), site)}
    assert found == {"low-gpu-utilization": "red"}
    before = {item.id: item.severity for item in advise(account, RULES, SITE)}
    assert before == {"low-gpu-utilization": "yellow", "throttling": "yellow"}
    rules = load_rules(BUILTIN, site)
    assert "switched off by site 'box'" in explain(find_rule("throttling", rules))
    page = explain(find_rule("low-gpu-utilization", rules))
    assert "red_percent = 20   (set by site 'box')" in page
    assert "red     gpu.utilization_percent <= 20" in page


@pytest.mark.parametrize(
    ("advice", "message"),
    [
        ({"timeot": None}, "site 'x': advice: there is no rule 'timeot'. Did you mean 'timeout'?"),
        ({"throttling": {"yelow_percent": 3}}, "no variable 'yelow_percent'. Did you mean"),
        ({"throttling": {"yellow_percent": True}}, "'yellow_percent' is True, must be a number"),
        ({"throttling": {"yellow_percent": (1,)}}, "must be a number"),
        ({"test-qos": {"test_qos": 3}}, "must be a list"),
    ],
)
def test_a_sites_mistake_is_refused(advice: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_rules(BUILTIN, Site(name="x", advice=advice))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: A rule", "titel: A rule", "mine.yaml:1: an advice rule needs 'title:'"),
        ("sources:", "source:", "mine.yaml:12: unknown key 'source'"),
        ("  red: job", "  rde: job", "mine.yaml:8: unknown key 'rde' in levels of rule 'mine'"),
        ("when: strict", "when: strickt", "mine.yaml:6: 'when' of rule 'mine': there is no 'stri"),
        (
            "when: strict",
            "when: 3",
            "mine.yaml:6: 'when' of rule 'mine': an operand of and/or is a n",
        ),
        ("  red: job", "  red: gpu", "mine.yaml:8: 'red' of rule 'mine': there is no 'gpu'"),
        ("Only {percent", "Only {prcent", "mine.yaml:10: 'message' of rule 'mine': there is no f"),
        ("half_percent:", "quarter_percent:", "there is no 'half_percent'"),
        ("limit_percent / 2", "where", "there is no 'where'"),
        ("strict: true", "strict: maybe", "mine.yaml:3: 'strict' must be a number, true, false or"),
        ("strict: true", "strict: true, min: 1", "mine.yaml:3: 'min' cannot be a name here"),
        ("strict: true", "strict: true, job: 1", "mine.yaml:3: 'job' cannot be a name here"),
        ("strict: true", "strict: true, a-b: 1", "mine.yaml:3: 'a-b' cannot be a name here"),
        ("strict: true", "strict: true, no: 1", "mine.yaml:3: 'no' is not used in the rule"),
        ("when: ", "for_each: core\nwhen: ", "mine.yaml:6: 'for_each' is 'core', must be one of"),
        ("when: ", "rests_on: luck\nwhen: ", "mine.yaml:6: 'rests_on' is 'luck', must be one of"),
        ("when: ", "lost_gpu_hours: strict\nwhen: ", "it is a truth, must be a number"),
        ("when: ", "silences: [mined]\nwhen: ", "silences 'mined', which is not a rule. Did you"),
        ("when: ", "silences: [mine]\nwhen: ", "silence each other: mine -> mine"),
        ("job.qos in kinds", "job.per_gpu == 1", "there is no 'job.per_gpu'"),
        ("when: strict", "when: __import__('os') == strict", "no function '__import__'"),
    ],
)
def test_a_wrong_rule_is_refused_with_file_and_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in RULE
    places = lab(tmp_path, {"advice/mine.yaml": RULE.replace(old, new, 1)})[:1]
    with pytest.raises(ConfigError) as caught:
        load_rules(places)
    assert message in str(caught.value)
    assert check_rules(places) == (str(caught.value),)


def test_a_rule_without_levels_is_refused(tmp_path: Path) -> None:
    text = RULE.replace("levels:", "level:")
    with pytest.raises(ConfigError, match="rule 'mine' needs 'levels:'"):
        own(tmp_path, text)


def test_two_rules_cannot_silence_each_other(tmp_path: Path) -> None:
    places = lab(
        tmp_path,
        {
            "advice/a.yaml": f"{RULE}silences: [b]\n",
            "advice/b.yaml": f"{RULE}silences: [a]\n",
        },
    )
    with pytest.raises(ConfigError, match=r"silence each other: (a -> b -> a|b -> a -> b)"):
        load_rules(places[:1])


def test_who_silences_comes_first() -> None:
    order = [rule.id for rule in in_order(RULES)]
    for rule in RULES:
        for name in rule.silences:
            assert order.index(rule.id) < order.index(name)


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    places = lab(
        tmp_path,
        {"advice/a.yaml": "title: x\n", "advice/b.yaml": "[\n", "advice/c.yaml": RULE},
    )
    problems = check_rules(places)
    assert [line.split(":")[0].rpartition("/")[2] for line in problems] == ["a.yaml", "b.yaml"]


def test_a_rule_that_fires_on_nothing_known_is_a_problem(tmp_path: Path) -> None:
    text = RULE.replace("red: job", "red: not known(job.qos) or job")
    text = text.replace("when: strict and not (job.qos in kinds)", "when: strict or len(kinds) > 0")
    (problem,) = check_rules(lab(tmp_path, {"advice/mine.yaml": text}))
    assert problem.endswith("mine.yaml: this rule fires on a job with no known figures.")


def test_a_sites_advice_is_checked_too(tmp_path: Path) -> None:
    site = "description: d\nadvice: {timeout: {hung_s: [1]}}\n"
    places = lab(tmp_path, {"sites/box.yaml": site, "sites/bad.yaml": "description:\n"})
    problems = check_rules(places)
    assert len(problems) == 2
    assert "bad.yaml" in problems[0]
    assert "box.yaml: site 'box': advice of rule 'timeout': 'hung_s'" in problems[1]


def test_an_unknown_rule_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"Unknown advice rule 'idle-tale'. .*'idle-tail'\?"):
        find_rule("idle-tale", RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_explain_tells_all_of_a_rule(rule: Rule) -> None:
    page = explain(rule)
    for text in (rule.title, *rule.sources, str(rule.found.path), f"{rule.id}: off"):
        assert text in page
    for name, value in rule.variables.items():
        assert name in page
        if isinstance(value, int | float):
            assert f"{name} = {value}" in page
    for severity in rule.levels:
        assert f"\n  {severity}" in page


def test_explain_on_one_page() -> None:
    assert (
        explain(one_rule("throttling"))
        == f"""\
throttling: Clocks were reduced

The GPU ran slower than it can because of heat or the power supply. The cause is the
machine, not the program.

Checked for each gpu. Based on the samples; red only when they cover 80 % of the job.

Conditions
  always  job.elapsed_s > 600
  yellow  gpu.throttled_percent >= 10

Marked in the pictures of --html
  during  now.throttled_percent > 0

Thresholds
  min_elapsed_s = 600
  yellow_percent = 10

Sources
  NVML: clock event reasons, read once a minute
  hpckit: a tenth of the minutes

From built-in: {BUILTIN[0].path}/templates/advice/throttling.yaml

To change this rule
  in the site's file, under advice:   throttling: {{min_elapsed_s: …}}, or throttling: off
  in your own collection: a file templates/advice/throttling.yaml replaces it"""
    )


def test_a_collection_that_is_gone_costs_the_advice_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(tmp_path / "gone"))
    told, found = advised(job())
    assert found == ()
    assert told.notes[0].text.startswith("No advice: ")
