"""What stands in the submitter's environment stays out of everything a run writes."""

import ast
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import HPCKIT

pytestmark = pytest.mark.long

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "planted-aws-9f2c",
    "HF_TOKEN": "planted-hf-77aa",
    "WANDB_API_KEY": "planted-wandb-51d0",
    "SSH_PASSPHRASE": "planted phrase with spaces 0c4e",
    "DATABASE_URL": "postgres://u:planted-db-e1f3@db/x",
    "BASH_FUNC_planted%%": "() { echo planted-function-aa; }",
}
SITE = """description: a site of the test
env: {NAMED: named-value-42}
"""
SCRIPT = """import os, sys
assert os.environ["HF_TOKEN"], "the job has its user's environment"
if "--fail" in sys.argv:
    raise RuntimeError("it fails")
print("done", os.environ["NAMED"])
"""


def files_with(folder: Path, word: str) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and word.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize("arguments", [(), ("--", "--fail")])
def test_no_file_of_a_run_holds_a_value_of_the_environment(here, monkeypatch, arguments) -> None:
    (here / "templates" / "sites").mkdir(parents=True)
    (here / "templates" / "sites" / "box.yaml").write_text(SITE)
    (here / "train.py").write_text(SCRIPT)
    env = {**os.environ, **SECRETS}
    base = ("submit", "ddp", "train.py", "--site", "box", "--gpus", "0", "--tasks-per-node", "2",
            "--executor", "local", "--sample-interval", "0.5", "--wait")  # fmt: skip
    done = subprocess.run([*HPCKIT, *base, *arguments], env=env, capture_output=True, text=True)
    assert done.returncode == bool(arguments), done.stderr
    for command in (["stats", "latest", "--json"], ["status", "latest", "--json"],
                    ["logs", "latest", "--all"], ["logs", "latest", "--errors"]):  # fmt: skip
        said = subprocess.run([*HPCKIT, *command], env=env, capture_output=True, text=True)
        assert not any(value in said.stdout + said.stderr for value in SECRETS.values())
    kept = here / "runs"
    names = {path.name for path in kept.rglob("*")}
    assert {"run.json", "job.sh", "summary.json", "controller.log"} <= names
    assert names & {"0.out", "1.out"}  # the rank that fails first may end the other before it began
    assert any(name.endswith("_submitted.pkl") for name in names)
    for value in SECRETS.values():
        assert files_with(here.parent, value) == []
    assert files_with(kept, "named-value-42")  # what a site names is in the script for all to read


def test_with_an_allow_list_jobs_get_what_it_names_and_what_they_need(here, monkeypatch) -> None:
    (here / "templates" / "sites").mkdir(parents=True)
    site = "description: a site of the test\npass_env: [WANDB_*]\n"
    (here / "templates" / "sites" / "box.yaml").write_text(site)
    (here / "train.py").write_text("import os; print(sorted(os.environ))")
    argv = ("submit", "serial", "train.py", "--site", "box", "--gpus", "0", "--executor", "local",
            "--wait")  # fmt: skip
    env = {**os.environ, **SECRETS}
    subprocess.run([*HPCKIT, *argv], env=env, capture_output=True, check=True)
    said = subprocess.run([*HPCKIT, "logs", "latest"], env=env, capture_output=True, text=True)
    names = ast.literal_eval(said.stdout)
    assert {"WANDB_API_KEY", "PATH", "HOME", "RANK", "HPCKIT_RUN_DIR"} <= set(names)
    assert not {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL"} & set(names)
