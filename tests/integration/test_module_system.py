"""A module system is one template of a collection, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.collections import search_path
from hpckit.detect.login_node import describe_machine
from hpckit.detect.page import site_page
from hpckit.doctor.environments import environment_checks
from hpckit.sites import find_site
from tests.conftest import Answer, write_files
from tests.integration.test_local import ENVIRONMENT, seen, submit
from tests.unit.detected import cluster
from tests.unit.lab import make_lab

pytestmark = pytest.mark.long

Cli = Callable[..., Answer]
TEMPLATE = """\
{#
  variables: OURS_HOME
#}
ours() { export OURS_LOADED="${OURS_LOADED:-}+$2"; }
{% for name in modules.load %}
ours load {{ name }}
{% endfor %}
"""
SITE = "description: d\nmodules: NAME\nenvironments:\n  it: {kind: modules, load: [a/1, 'b 2']}\n"


@pytest.fixture
def lab(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lab = make_lab(here.parent / "lab")
    write_files(lab, {"templates/modules/ours.sh.j2": TEMPLATE})
    write_files(lab, {"templates/sites/lab-box.yaml": SITE.replace("NAME", "ours")})
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(lab))
    return lab


def test_a_job_runs_with_a_module_system_of_a_collection(here: Path, lab: Path) -> None:
    run = submit(ENVIRONMENT, "--site", "lab-box", "--env", "it", "--wait")
    assert (run["state"], run["exit_code"]) == ("COMPLETED", 0)
    assert seen(run, 0)["env"]["OURS_LOADED"] == "+a/1+b 2"


def test_a_site_names_no_module_system_without_a_template(cli: Cli, lab: Path) -> None:
    site = lab / "templates" / "sites" / "lab-box.yaml"
    site.write_text(SITE.replace("NAME", "our"))
    answer = cli("sites", "show", "lab-box")
    assert answer.status == 2
    assert (
        f"{site}:2: 'modules' is 'our', but no collection has a template modules/our.sh.j2. "
        "Did you mean 'ours'?"
    ) in answer.err


def test_lint_reads_the_template_and_renders_jobs_with_it(cli: Cli, lab: Path) -> None:
    lines = cli("templates", "lint").out.splitlines()
    assert [line for line in lines if not line.endswith(", 0 findings")] == []
    assert any(line.startswith("slurm/base.sh.j2 (lab (group)): ") for line in lines)
    template = lab / "templates" / "modules" / "ours.sh.j2"
    template.write_text(TEMPLATE.replace("modules.load", "modules.lode"))
    answer = cli("templates", "lint")
    assert answer.status == 1
    assert f"{template}:5: 'dict object' has no attribute 'lode'" in answer.out
    template.write_text(TEMPLATE + "echo )\n")
    assert f"{template}:8: bash: syntax error" in cli("templates", "lint").out


def test_init_and_doctor_know_it(here: Path, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LMOD_CMD", "LMOD_VERSION", "LMOD_PKG", "MODULESHOME", "MODULES_CMD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LOADEDMODULES", raising=False)
    monkeypatch.setenv("OURS_HOME", "/opt/ours")
    page = site_page(cluster("25.05", describe_machine()))
    assert "\nmodules: ours  # $OURS_HOME" in page
    monkeypatch.delenv("OURS_HOME")
    assert describe_machine().module_names == ("lmod", "ours", "tmod", "spack")
    (check,) = environment_checks(find_site("lab-box", search_path()), 20)
    assert check.todo == "only the job itself can ask ours"
