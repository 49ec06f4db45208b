"""Rules are read once; what is kept of them says what their files say."""

from pathlib import Path

import pytest

from hpckit.errors import ConfigError
from hpckit.stats.advice import keeping, reading
from hpckit.stats.advice.engine import advise
from hpckit.stats.advice.loading import list_rules
from hpckit.stats.advice.reading import read_rule
from hpckit.stats.advice.rules import Rule
from tests.advice.made import BUILTIN
from tests.advice.test_loading import RULE, lab

OFF = "enabled: false\n"


@pytest.fixture
def read(cache_at_home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep things in an empty home; name the rules whose files were read."""
    names: list[str] = []
    parse = reading.parse_rule

    def parsed(text: str, found: object) -> Rule:
        rule = parse(text, found)  # type: ignore[arg-type]
        names.append(rule.id)
        return rule

    monkeypatch.setattr(reading, "parse_rule", parsed)
    return names


def test_rules_of_ours_are_kept_as_they_are(read: list[str]) -> None:
    found = list_rules(BUILTIN)
    first = keeping.read_rules(found.values())
    again = keeping.read_rules(found.values())
    assert sorted(read) == sorted(found)
    assert again == first == [read_rule(place) for place in found.values()]
    programs = [[rule.levels[level].program for level in rule.levels] for rule in again]
    assert programs == [[rule.levels[level].program for level in rule.levels] for rule in first]


def test_a_changed_file_is_read_anew(read: list[str], tmp_path: Path) -> None:
    found = list_rules(lab(tmp_path, {"advice/mine.yaml": RULE})[:1])
    (before,) = keeping.read_rules(found.values())
    lab(tmp_path, {"advice/mine.yaml": RULE.replace("A rule", "Another") + OFF})
    (after,) = keeping.read_rules(found.values())
    (kept,) = keeping.read_rules(found.values())
    assert read == ["mine", "mine"]
    assert (before.title, before.off) == ("A rule", None)
    assert after == kept
    assert (kept.title, kept.off) == ("Another", f"enabled: false in {found['mine'].path}")


def test_the_same_text_elsewhere_is_another_file(read: list[str], tmp_path: Path) -> None:
    for name in ("one", "two"):
        files = list_rules(lab(tmp_path / name, {"advice/mine.yaml": RULE + OFF})[:1])
        (rule,) = keeping.read_rules(files.values())
        assert rule.off == f"enabled: false in {tmp_path / name / 'lab/templates/advice/mine.yaml'}"
        assert rule.found == files["mine"]
    assert read == ["mine"]


def test_a_wrong_rule_is_wrong_each_time(read: list[str], tmp_path: Path) -> None:
    found = list_rules(lab(tmp_path, {"advice/mine.yaml": RULE + "colour: red\n"})[:1])
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"mine\.yaml.*colour"):
            keeping.read_rules(found.values())
    assert read == []


def test_kept_rules_advise(read: list[str], tmp_path: Path) -> None:
    from tests.advice.made import gpu, job

    found = list_rules(lab(tmp_path, {"advice/mine.yaml": RULE})[:1])
    account = job(gpus=(gpu(utilization_percent=5.0),))
    each = [advise(account, keeping.read_rules(found.values())) for _ in range(2)]
    assert each[0] == each[1]
    assert each[1][0].message == "Only 5.0 %."
    assert read == ["mine"]
