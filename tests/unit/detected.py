"""Clusters of `tests/recorded/detect`, and what init makes of them."""

from pathlib import Path
from typing import Any

from hpckit.detect.answers import Detected, Folder, ModuleSystem, Reply, Surroundings, read_answers
from hpckit.detect.login_node import questions
from hpckit.detect.page import site_page
from hpckit.sites import Site, read_site
from tests.conftest import add_program
from tests.unit.recorded import RECORDED

VERSIONS = ("20.11", "21.08", "23.11", "24.05", "25.05")
HERE = Surroundings(
    hostname="login2.example.org",
    slurm_conf=None,
    modules=(ModuleSystem(name="lmod", evidence="$LMOD_CMD", active=True),),
    folders=(
        Folder(label="./", path="/home/me/work", file_system="nfs4", shared=True),
        Folder(label="$SCRATCH", path="/scratch/me", file_system="lustre", shared=True),
        Folder(label="$HOME", path="/home/me", file_system="ext4", shared=False),
    ),
)


def sections(version: str) -> dict[str, str]:
    """Give what each program said, by its key; KEY! is why one did not answer."""
    text = RECORDED.joinpath("detect", f"{version}.txt").read_text(encoding="utf-8")
    _, *parts = text.split("=== ")
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def answers(version: str, /, **changed: str) -> dict[str, Reply]:
    said = sections(version) | changed
    return {
        key: Reply(asked=" ".join(argv), text=said[key])
        if key in said
        else Reply(asked=" ".join(argv), why=said[f"{key}!"].strip())
        for key, argv in questions("me").items()
    }


def cluster(version: str, here: Surroundings = HERE, /, **changed: str) -> Detected:
    return read_answers(answers(version, **changed), here)


def load(page: str, folder: Path, name: str = "found") -> Site:
    path = folder / f"{name}.yaml"
    path.write_text(page, encoding="utf-8")
    return read_site(path)


def a_site(**changed: Any) -> Site:
    names = ("account", "partition", "qos")
    defaults = {name: changed.pop(name) for name in names if name in changed}
    return Site(name="mine", description="x", defaults=defaults, **changed)


def site(version: str, folder: Path, /, **changed: str) -> Site:
    return load(site_page(cluster(version, **changed)), folder)


PROGRAMS = ("sinfo", "scontrol", "srun", "sacctmgr", "sacct")
# Each question writes down its argv, and prints its section.
_PROGRAM = """#!/bin/bash
echo "${{0##*/}} $*" >> {folder}/calls
case "$*" in
{cases}
esac
echo "${{0##*/}}: error: unknown question $*" >&2
exit 1
"""


class Cluster:
    """Programs on PATH that say what a file of `tests/recorded/detect` does."""

    def __init__(self, bin_folder: Path, version: str) -> None:
        self.bin = bin_folder
        self.folder = bin_folder.parent / "cluster"
        self.folder.mkdir()
        self.says(version)

    def says(self, version: str, **changed: str) -> None:
        said = sections(version) | changed
        cases: dict[str, list[str]] = {name: [] for name in PROGRAMS}
        for key, argv in questions("root").items():
            words = " ".join(argv[1:])
            if key in said:
                (self.folder / key).write_text(said[key])
                do = f"cat {self.folder}/{key}; exit 0"
            else:
                (self.folder / key).write_text(said[f"{key}!"])
                do = f"cat {self.folder}/{key} >&2; exit 1"
            cases[argv[0]].append(f"'{words}') {do};;")
        for name, rows in cases.items():
            text = _PROGRAM.format(folder=self.folder, cases="\n".join(rows))
            add_program(self.bin / name, text)

    def hangs(self, name: str) -> None:
        add_program(self.bin / name, "#!/bin/sh\nexec sleep 300\n")

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()
