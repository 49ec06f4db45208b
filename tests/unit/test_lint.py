"""`hpckit templates lint` on collections with planted faults: each by its file and line."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.collections import Collection
from hpckit.lint import lint_collection
from hpckit.render.rendering import take_marks
from hpckit.version import DISTRIBUTION, __version__
from tests.conftest import Answer, write_files
from tests.unit.lab import make_lab
from tests.unit.made import BUILTIN

Cli = Callable[..., Answer]
_PLACE = re.compile(r"(/\S+?)(?::(\d+))?: (.*)")


def lint(cli: Cli, here: Path) -> dict[tuple[str, int], str]:
    """Return findings by file, below `here`, and line."""
    answer = cli("templates", "lint")
    rows = [_PLACE.fullmatch(line) for line in answer.out.splitlines()]
    found = {}
    for row in rows:
        if row:
            place = (str(Path(row[1]).relative_to(here)), int(row[2] or 0))
            assert place not in found, f"twice: {row[0]}"
            found[place] = row[3]
    assert answer.status == (1 if found else 0), answer.out + answer.err
    return found


BASE = '{% extends "slurm/base.sh.j2" %}\n'
# What is planted, and where lint must find it.
FAULTS = {
    "hpckit.yaml": (
        "name: lab\ndescription: d\ncontact: c\nurl: u\nhpckit: '>=99'\nmail: x\n",
        {5: "needs hpckit >=99", 6: "unknown key 'mail'"},
    ),
    "templates/slurm/late.sh.j2": (
        BASE + "{% block setup %}\nexport A=1\n#SBATCH --mem=1G\n{% endblock %}\n",
        {4: "Slurm ignores '#SBATCH --mem=1G'"},
    ),
    "templates/slurm/shell.sh.j2": (
        BASE + "{% block setup %}\n{{ super() -}}\nif true; then\n  cd $HOME/x\nfi\n"
        "{% endblock %}\n{% block environment %}\n{% for n in modules.load %}\necho {{ n }} )\n"
        "{% endfor %}\n{% endblock %}\n",
        {10: "bash: syntax error near unexpected token `)'"},
    ),
    "templates/slurm/sloppy.sh.j2": (
        BASE + "{% block setup %}\n{{ super() -}}\n\nrm -r $TMPDIR_OLD/*\n{% endblock %}\n",
        {5: "shellcheck SC"},
    ),
    "templates/slurm/vain.sh.j2": (
        BASE + "{% block setupp %}\nexport A=1\n{% endblock %}\n\n# why\nexport B=1\n"
        "{% if nodes > 1 %}{{ run.id }}{% endif %}\n{% block setup %}{% block mine %}true\n"
        "{% endblock %}{% endblock %}\n",
        {
            2: "block 'setupp' is left out, because no template that this one extends has it. "
            "Did you mean 'setup'?",
            6: "'# why' is left out, because it stands in no block",
            8: "what is printed here is left out",
        },
    ),
    "templates/slurm/unknown.sh.j2": (
        BASE + "{% block setup %}\n{% if nodes > 9000 %}\necho {{ nodez }}\n{% endif %}\n"
        "{% endblock %}\n",
        {4: "unknown variable 'nodez'. Did you mean 'nodes'?"},
    ),
    "templates/slurm/quoted.sh.j2": ('#!/bin/bash\n\necho "{{ run.id }}"\n', {3: "inside quotes"}),
    "templates/slurm/open.sh.j2": ("#!/bin/bash\n{% if nodes %}\ntrue\n", {2: "endif"}),
    "templates/environments/lab.sh.j2": (
        '# ours\n{% include "environments/vnev.sh.j2" %}\n',
        {2: "no template 'environments/vnev.sh.j2'"},
    ),
    "templates/sites/lab-box.yaml": (
        "description: d\ndefaults:\n  partition: gpu\n  time: soon\ngpus: {per_nod: 4}\n",
        {4: "soon", 5: "unknown key 'per_nod'"},
    ),
    "workloads/lab-hello/workload.yaml": (
        "description: hello\nstrategy: dddp\nscript: hello.py\n"
        "parameters:\n  n: {type: int, default: x, help: h}\n",
        {2: "unknown strategy 'dddp'"},
    ),
    "workloads/lab-hello/hello.py": ("import os\nprint(os.environ['A']\n", {2: "Python:"}),
    "templates/advice/lab.yaml": (
        "title: t\nwhy: w\nfor_each: job\nwhen: job.elapsed_z > 3\nmessage: m\naction: a\n"
        "levels: {red: true}\nsources: [s]\n",
        {4: "elapsed_z"},
    ),
}


@pytest.mark.long
def test_each_planted_fault_is_found_by_file_and_line(here: Path, cli: Cli) -> None:
    make_lab(here, **{name: text for name, (text, _) in FAULTS.items()})
    found = lint(cli, here)
    wanted = {
        (name, line): why for name, (_, lines) in FAULTS.items() for line, why in lines.items()
    }
    assert len(wanted) >= 12
    missing = {place: why for place, why in wanted.items() if why not in found.get(place, "")}
    assert not missing, found
    assert found.keys() == wanted.keys()


@pytest.mark.long
def test_lint_of_one_template_finds_what_submit_refuses(here: Path, cli: Cli) -> None:
    text = BASE + "{% block setupp %}\nexport A=1\n{% endblock %}\n"
    write_files(here, {"templates/slurm/vain.sh.j2": text})
    answer = cli("templates", "lint", "vain")
    assert answer.status == 1
    assert "vain.sh.j2:2: block 'setupp' is left out" in answer.out
    assert "35 plans, 1 finding" in answer.out


@pytest.mark.long
def test_a_piece_that_others_include_is_no_script(here: Path, cli: Cli) -> None:
    text = BASE + '{% block setup %}\n{% include "slurm/piece.sh.j2" %}\n{% endblock %}\n'
    write_files(here, {"templates/slurm/lab.sh.j2": text,
                       "templates/slurm/piece.sh.j2": "export X={{ run.id }}\n"})  # fmt: skip
    assert lint(cli, here) == {}
    (here / "templates/slurm/lab.sh.j2").unlink()
    assert "script whose first line is" in cli("templates", "lint").out


@pytest.mark.long
def test_a_collection_without_faults_has_none(here: Path, cli: Cli) -> None:
    make_lab(here)
    assert lint(cli, here) == {}


@pytest.mark.long
def test_the_examples_collection_has_no_faults_and_renders(
    here: Path, cli: Cli, monkeypatch
) -> None:
    example = Path(__file__).parents[2] / "examples" / "lab-templates"
    copy = shutil.copytree(example, here / "lab", copy_function=shutil.copyfile)
    monkeypatch.chdir(copy)
    assert lint(cli, copy) == {}
    answer = cli("submit", "hello", "--site", "example-cluster", "--dry-run")
    assert "#SBATCH --mail-type=FAIL" in answer.out
    assert "24" in cli("stats", "--explain", "lab-long-run").out
    monkeypatch.chdir(here)
    assert cli("collections", "add", "lab").status == 0
    assert "hello" in cli("workloads", "list").out


@pytest.mark.long
def test_lint_says_what_would_keep_others_from_adding_it(here: Path, cli: Cli) -> None:
    make_lab(here)
    (here / "workloads" / "lab-hello" / "hello.py").chmod(0o666)
    (here / "templates" / "secret.j2").symlink_to("/etc/passwd")
    (here / "hpckit.yaml").write_text("name: lab\n")
    assert lint(cli, here).keys() == {
        ("workloads/lab-hello/hello.py", 0),
        ("templates/secret.j2", 0),
        ("hpckit.yaml", 1),
    }


@pytest.mark.parametrize("end", ["", "\n"])
def test_marks_leave_the_text_as_it_is(end: str) -> None:
    text, origins = take_marks(f"a\ue0000:3\ue001\nb\nc\ue0001:1\ue001{end}", ["x", "y"])
    assert text == f"a\nb\nc{end}"
    assert origins[:3] == (("x", 3), None, ("y", 1))


@pytest.mark.long
def test_a_new_collection_passes_its_own_check(here: Path, cli: Cli, monkeypatch) -> None:
    answer = cli("collections", "new", "our lab")
    assert (answer.status, "hpckit.yaml" in answer.out) == (0, True)
    monkeypatch.chdir("our lab")
    assert lint(cli, here / "our lab") == {}
    assert cli("submit", "our-lab-hello", "--site", "our-lab-cluster", "--dry-run").status == 0
    assert "export WANDB_NAME=" in (here / "our lab/templates/slurm/base.sh.j2").read_text()
    text = (here / "our lab" / ".github" / "workflows" / "check.yml").read_text()
    assert "run: ./check" in text
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", word) for word in used)
    (packages,) = re.findall(r"run: pip install (.*)", text)
    assert packages.split()[0] == f"{DISTRIBUTION}=={__version__}"
    assert all(re.fullmatch(r"[a-z-]+==[0-9.]+", word) for word in packages.split())
    check = (here / "our lab" / "check").read_text()
    assert "hpckit templates lint" in check
    assert '--site "$site_name" --dry-run' in check
    monkeypatch.chdir(here)
    answer = cli("collections", "new", "our lab")
    assert (answer.status, "not empty" in answer.err) == (2, True)
    write_files(here, {"file": ""})
    assert cli("collections", "new", "file").status == 2
    answer = cli("collections", "new", "project")
    assert (answer.status, "Give the folder another name." in answer.err) == (2, True)
    assert cli("collections", "new", "yes").status == 0  # to YAML a truth value
    assert cli("collections", "add", "yes").status == 0


def test_a_collection_deeper_than_any_is_one_error(here: Path, cli: Callable[..., Answer]) -> None:
    (here / "templates" / "/".join("d" * 300)).mkdir(parents=True)
    answer = cli("templates", "lint", ".")
    assert (answer.status, answer.out) == (2, "")
    assert "folders deep" in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_finding_is_the_errors_own_file_and_line(tmp_path: Path) -> None:
    """A folder may be called as a message begins: nothing is read out of the text."""
    folder = make_lab(tmp_path / "odd:7: lab", **{"hpckit.yaml": "name: lab\ndescripton: x\n"})
    lab = Collection(name="lab", path=folder, origin="group")
    found = {(row.path, row.line) for row in lint_collection(lab, (lab, BUILTIN))}
    assert (str(folder / "hpckit.yaml"), 2) in found
    assert {path for path, _ in found} <= {
        str(folder / "hpckit.yaml"),
        *map(str, folder.rglob("*")),
    }
