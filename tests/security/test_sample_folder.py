"""`hpckit sample` in a folder that others write: no link is followed to where they want it."""

import os
import sys
from pathlib import Path

import pytest

from hpckit.stats.sampler import start
from tests.conftest import write_files
from tests.patience import LONG_S

# Waits for the sampler's first line, however busy the machine is.
WAIT = """\
import pathlib, sys, time
while not any(path.stat().st_size for path in pathlib.Path(sys.argv[1]).glob("*.jsonl")):
    time.sleep(0.05)
"""


def sampled(cli, here: Path, *words: str, expected: Path | None = None) -> tuple[str, list[Path]]:
    program = [sys.executable, "-c", WAIT, str(expected)] if expected else ["true"]
    answer = cli("sample", "--interval", "0.2", *words, "--", *program)
    assert answer.status == 0
    return answer.err, sorted(path for path in here.parent.rglob("*.jsonl") if path.is_file())


def test_samples_go_into_a_folder_of_ones_own(here: Path, cli, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(start, "_STOP_S", LONG_S)  # on a busy machine its end takes longer
    for words, place in (((), here / "hpckit-samples" / "7"), (("--dir", "x"), here / "x")):
        said, files = sampled(cli, here, *words, expected=place)
        assert said == ""
        assert place in {path.parent for path in files}


@pytest.mark.parametrize("name", ["hpckit-samples", "hpckit-samples/7"])
def test_a_link_in_its_place_is_not_followed(here: Path, cli, monkeypatch, name: str) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    write_files(here.parent, {"home/precious": None})
    (here / name).parent.mkdir(exist_ok=True)
    (here / name).symlink_to(here.parent / "home" / "precious")
    said, files = sampled(cli, here)
    assert f"no GPU samples: {name} is not a folder: choose another folder with --dir" in said
    assert files == []
    assert list((here.parent / "home" / "precious").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")
def test_anothers_folder_in_its_place_is_not_used(here: Path, cli, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    (here / "hpckit-samples").mkdir(mode=0o777)
    os.chown(here / "hpckit-samples", 61002, 61002)
    said, files = sampled(cli, here)
    assert "hpckit-samples is a folder of another user" in said
    assert files == []
