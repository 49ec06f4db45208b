"""Two MIG slices of one GPU, which share its number: each page tells them apart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpckit.notify.idling import IdleGpus
from hpckit.report.job_page import Page, notes_of, page
from hpckit.report.terminal import Style
from hpckit.stats.js1 import from_record
from hpckit.stats.merge import merge
from hpckit.stats.openmetrics import openmetrics
from hpckit.stats.samples.records import GpuInfo, gpu_numbers
from hpckit.stats.summary.figures import GpuUse, JobUse, SourceNote
from hpckit.stats.summary.summarise import gpu_notes
from tests.conftest import Answer, document
from tests.report.made import make_run, write_samples

Cli = Callable[..., Answer]
SLICES = tuple(
    GpuInfo(index=0, uuid=f"MIG-{letter * 8}-1", name="H200 MIG 1g.18gb", mig_parent="GPU-0",
            memory_total_bytes=64 << 30)
    for letter in "ba"
)  # fmt: skip
WHOLE = GpuInfo(index=1, uuid="GPU-1", name="NVIDIA H200", memory_total_bytes=140 << 30)


def test_what_gpus_are_called() -> None:
    places = [("n1", 0), ("n2", 0), ("n1", 0), ("n1", 1), ("n1", None), ("n1", None)]
    assert gpu_numbers(places) == ["0.0", "0", "0.1", "1", "?", "?"]


def test_pages_advice_and_files_tell_slices_apart(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs") / "samples"
    write_samples(folder, [[90.0] * 361, [0.0] * 361, [95.0] * 361], infos=(*SLICES, WHOLE))
    shown = cli("stats", "latest").out
    rows = [line.split("  ")[0] for line in shown.splitlines() if line.startswith("n1 ")]
    assert rows == ["n1 0.0 MIG", "n1 0.1 MIG", "n1 1"]
    assert "GPU 0.1 (MIG-aaaaaaaa) on n1" in shown
    found = document(cli, "latest")
    (unused,) = [item for item in found["advice"] if item["id"] == "gpu-unused"]
    assert [place["number"] for place in unused["places"]] == ["0.1"]
    assert found["jobstats"]["nodes"]["n1"]["gpu_utilization"] == {"0.0": 90, "0.1": 0, "1": 95}
    assert cli("stats", "latest", "--html", "page.html").status == 0
    text = (here / "page.html").read_text()
    for number in ("0.0", "0.1"):
        assert f">n1 {number} MIG<" in text
        assert f'"label": "GPU {number}"' in text or f'"label":"GPU {number}"' in text
    note = cli("stats", "latest", "--template", "note").out.replace("\\", "")
    assert "| n1 | 0 (MIG-aaaaaaaa-1) | 0 % |" in note


def test_of_gpus_with_unlike_memory_the_page_shows_the_fullest(here: Path, cli: Cli) -> None:
    """60 GiB of a slice's 64, and of the whole GPU's 140."""
    folder = make_run(here / "runs") / "samples"
    write_samples(folder, [[90.0] * 361] * 2, infos=(SLICES[0], WHOLE))
    assert "fullest 60.0/64.0 GiB" in cli("stats", "latest").out


def test_of_gpus_whose_memory_is_unknown_none_is_the_highest() -> None:
    gpus = (GpuUse(host="n1", index=0, utilization_percent=9.0), GpuUse(host="n1", index=1))
    job = JobUse(job_id="7", elapsed_s=60.0, gpus=2, per_gpu=gpus)
    text = page(Page(job=job), Style())
    (row,) = [line for line in text.splitlines() if line.startswith("GPU memory")]
    assert row.endswith(" ?")


def test_a_note_says_which_gpu_other_jobs_used_too() -> None:
    gpus = [GpuUse(host="n1", index=at, uuid=f"GPU-1234567{at}") for at in (0, 1)]
    tallies: list[Any] = [
        SimpleNamespace(host="n1", info=SimpleNamespace(uuid=gpu.uuid), confidence=word)
        for gpu, word in zip(gpus * 2, ("verified", "shared") * 2, strict=True)
    ]
    job = JobUse(job_id="7", per_gpu=tuple(gpus), notes=tuple(gpu_notes(tallies, gpus)))
    assert list(notes_of(job)) == ["n1 GPU 1: Processes of other jobs used this GPU too."]
    other = SourceNote(code="gpu_error", text="Odd.", host="n1", gpu="GPU-abcdefghijkl")
    assert list(notes_of(replace(job, notes=(other,)))) == ["n1 GPU-abcdefgh: Odd."]


def test_idle_slices_are_told_apart(tmp_path: Path) -> None:
    idle = IdleGpus(tmp_path)
    write_samples(tmp_path, [[0.0] * 61, [0.0] * 61], infos=SLICES)
    assert str(idle.look(60.0, "all", 1)).endswith("(n1:0.0, n1:0.1)")


@pytest.mark.parametrize("keys", [("0.0", "0.1"), ("2", "10")])
def test_slices_of_a_record_are_slices_and_have_lines_of_their_own(keys: tuple[str, str]) -> None:
    used = {key: float(at) for at, key in enumerate(keys)}
    record = {"gpus": 2, "total_time": 60, "nodes": {"n1": {"gpu_utilization": used}}}
    job = merge(JobUse(job_id="7"), None, [from_record(record)])
    sliced = "." in keys[0]
    assert [gpu.mig for gpu in job.per_gpu] == [sliced] * 2
    assert [gpu.utilization_percent for gpu in job.per_gpu] == [0.0, 1.0]
    lines = [line for line in openmetrics([job]).splitlines() if line.startswith("hpckit_gpu_util")]
    assert [f'gpu="{key}"' in line for key, line in zip(keys, lines, strict=True)] == [True] * 2
