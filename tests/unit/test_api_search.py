"""Sites, workloads, templates and lint from Python: what the command line prints, as values."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import hpckit
from tests.conftest import Answer, write_files

Cli = Callable[..., Answer]


def test_lists_are_those_of_the_command_line(here: Path, cli: Cli) -> None:
    for word, rows in (
        ("sites", hpckit.sites()),
        ("workloads", hpckit.workloads()),
        ("templates", hpckit.templates()),
    ):
        printed = json.loads(cli(word, "list", "--json").out)
        assert printed
        assert [row["name"] for row in printed] == [row.name for row in rows]
    assert hpckit.template_variables() == json.loads(cli("templates", "vars", "--json").out)


def test_one_of_each_says_where_it_comes_from(here: Path) -> None:
    write_files(here, {"templates/sites/alvis.yaml": "description: mine\n"})
    site, workload = hpckit.site("alvis"), hpckit.workload("from-scratch")
    assert site.path == here / "templates/sites/alvis.yaml"
    assert site.found is not None
    assert [row.name for row in site.found.shadows] == ["built-in"]
    assert workload.found is not None
    assert workload.found.collection.origin == "built-in"
    assert hpckit.site().name == "generic"
    with pytest.raises(hpckit.RequestError, match="Unknown site 'alvsi'"):
        hpckit.site("alvsi")


def test_a_template_is_compared_with_the_one_it_shadows(here: Path) -> None:
    theirs = hpckit.template("base")
    with pytest.raises(hpckit.RequestError, match="does not shadow"):
        theirs.diff()
    write_files(here, {"templates/slurm/base.sh.j2": theirs.text() + "echo more\n"})
    mine = hpckit.template("base")
    assert [line for line in mine.diff().splitlines()[2:] if line[0] in "+-"] == ["+echo more"]
    assert mine.hash() != theirs.hash()
    assert mine.text() == theirs.text() + "echo more\n"


def test_lint_yields_findings_with_their_places(here: Path) -> None:
    write_files(here, {"templates/slurm/bad.sh.j2": "#!/bin/bash\nif\n", "hpckit.yaml": "nam: x\n"})
    [row] = hpckit.lint("bad")
    assert row.subject == "slurm/bad.sh.j2 (project)"
    assert row.findings
    assert all(str(here / "templates/slurm/bad.sh.j2") in line for line in row.findings)
    found = {row.subject: row.findings for row in hpckit.lint()}
    assert any("'nam'" in line for line in found["collections"])
    assert found["advice"] == ()


def test_what_is_left_out_goes_to_the_logger(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_files(here, {"hpckit.lock": "nonsense"})
    with caplog.at_level(logging.INFO, "hpckit"):
        hpckit.workloads()
    assert "collection 'hpckit.lock' is left out" in caplog.text


def test_the_script_of_a_job_is_the_one_of_a_dry_run(here: Path, cli: Cli) -> None:
    words = ("submit", "ddp", "--nodes", "2", "--dry-run", "--executor", "slurm")
    script = hpckit.script("ddp", nodes=2, executor="slurm")

    def settled(text: str) -> list[str]:
        return [line for line in text.splitlines() if "ddp-" not in line]  # the run's own id

    assert settled(script) == settled(cli(*words).out)
    assert "#SBATCH --nodes=2" in script
    assert not (here / "runs").exists()
    with pytest.raises(hpckit.RequestError, match="--check asks Slurm"):
        hpckit.check("ddp")


def test_what_slurm_says_of_a_job_before_it_is_submitted(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    words = ("submit", "ddp", "--nodes", "2", "--check")
    for said in (hpckit.check("ddp", nodes=2), cli(*words).out):
        assert said.startswith("Slurm would accept this job: ")
