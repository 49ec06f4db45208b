"""Clusters of `tests/recorded/detect`, and what init makes of them."""

from pathlib import Path

from hpckit.detect.ask import questions
from hpckit.detect.cluster import read_answers
from hpckit.detect.model import Answer, Detected, ModuleSystem, Place, Surroundings
from hpckit.detect.page import site_page
from hpckit.sites import Site, read_site
from tests.unit.recorded import RECORDED

VERSIONS = ("20.11", "21.08", "23.11", "24.05", "25.05")
HERE = Surroundings(
    hostname="login2.example.org",
    slurm_conf=None,
    modules=(ModuleSystem(name="lmod", evidence="$LMOD_CMD", active=True),),
    places=(
        Place(label="./", path="/home/me/work", file_system="nfs4", shared=True),
        Place(label="$SCRATCH", path="/scratch/me", file_system="lustre", shared=True),
        Place(label="$HOME", path="/home/me", file_system="ext4", shared=False),
    ),
)


def sections(version: str) -> dict[str, str]:
    """Give what each program said, by its key; KEY! is why one did not answer."""
    text = RECORDED.joinpath("detect", f"{version}.txt").read_text(encoding="utf-8")
    _, *parts = text.split("=== ")
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def answers(version: str, /, **changed: str) -> dict[str, Answer]:
    said = sections(version) | changed
    return {
        key: Answer(asked=" ".join(argv), text=said[key])
        if key in said
        else Answer(asked=" ".join(argv), why=said[f"{key}!"].strip())
        for key, argv in questions("me").items()
    }


def cluster(version: str, here: Surroundings = HERE, /, **changed: str) -> Detected:
    return read_answers(answers(version, **changed), here)


def load(page: str, folder: Path, name: str = "found") -> Site:
    path = folder / f"{name}.yaml"
    path.write_text(page, encoding="utf-8")
    return read_site(path)


def site(version: str, folder: Path, /, **changed: str) -> Site:
    return load(site_page(cluster(version, **changed)), folder)
