"""The sites that are shipped: public clusters as data, each as the script of a job that fits it."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpckit.collections import search_path
from hpckit.documents import read_document
from hpckit.errors import ConfigError
from hpckit.job import Job
from hpckit.job.checks import CHECKS
from hpckit.job.place import RunPlace
from hpckit.job.resolve import resolve
from hpckit.job.script import make_script
from hpckit.job_spec.spec import JobSpec
from hpckit.lint import bash_errors, late_options, shellcheck
from hpckit.sites import GENERIC, Site, find_site, list_sites, read_site
from hpckit.sites.site_sources import Source, sources_of
from hpckit.workloads import load_workload
from tests.conftest import Answer
from tests.pages import blocks
from tests.unit.made import BUILTIN

Cli = Callable[..., Answer]
PAGE = Path(__file__).parents[2] / "docs" / "sites.md"
NAMES = sorted(set(list_sites((BUILTIN,))) - {GENERIC})
# What hpckit chooses by itself, from what the cluster has.
OWN_CHOICE = ("defaults.time", "defaults.environment")
MASKS = ("0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,"
         "0xfe0000000000")  # fmt: skip
# A job for each cluster: what is asked, what its script must hold, and what it must not.
JOBS: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "alvis": (
        {"nodes": 2, "gpus": 4, "gpu_type": "A100", "account": "NAISS2026-1-1"},
        ("--account=NAISS2026-1-1", "--partition=alvis", "--gpus-per-node=A100:4",
         "module load PyTorch-bundle/2.1.2-foss-2023a-CUDA-12.1.1"),
        ("--gres", "--constraint"),
    ),
    "berzelius": (
        {"gpus": 8, "constraint": "fat"},
        ("--gpus-per-node=8", "--constraint=fat", "--cpus-per-task=16"),
        ("--partition", "module load"),
    ),
    "clariden": (
        {"nodes": 2, "gpus": 4},
        ("--partition=normal", "--gpus-per-node=4", "--cpus-per-task=72"),
        ("--gres", "module load"),
    ),
    "daint": (
        {"nodes": 2, "gpus": 4, "account": "g123", "time_min": 24 * 60},
        ("--partition=normal", "--account=g123", "--time=1-00:00:00"),
        ("--gres",),
    ),
    "dardel": (
        {"gpus": 8, "account": "naiss2026-1-1", "env": "rocm"},
        ("--partition=gpu", "--account=naiss2026-1-1", "--gpus-per-node=8", "--cpus-per-task=8",
         "module load PDC/26.03", "module load craype-accel-amd-gfx90a"),
        ("--gres", "--cpu-bind"),
    ),
    "della": (
        {"gpus": 2, "constraint": "nomig&gpu40"},
        ("--gres=gpu:2", "--constraint='nomig&gpu40'", "--cpus-per-task=12"),
        ("--gpus-per-node", "--partition"),
    ),
    "delta": (
        {"nodes": 2, "gpus": 4, "account": "abcd-delta-gpu", "env": "pytorch"},
        ("--partition=gpuA100x4", "--account=abcd-delta-gpu", "--gpus-per-node=4",
         "--cpus-per-task=16", "--gpu-bind=none", "module load anaconda3_gpu",
         "export NCCL_SOCKET_IFNAME=hsn"),
        ("--gres",),
    ),
    "frontier": (
        {"nodes": 2, "gpus": 8, "account": "ABC123", "env": "rocm"},
        ("--partition=batch", "--account=ABC123", "--gpus-per-node=8", "--core-spec=8",
         "--cpus-per-task=7", f"--cpu-bind=mask_cpu:{MASKS}", "module load rccl-net-plugin"),
        ("--gres", "--gpus-per-task", "ROCR_VISIBLE_DEVICES"),
    ),
    "juwels-booster": (
        {"nodes": 2, "gpus": 4, "account": "training1", "template": "jsc"},
        ("--partition=booster", "--account=training1", "--gres=gpu:4", "--cpus-per-task=24",
         "--cpu-bind=none", "export CUDA_VISIBLE_DEVICES=0,1,2,3", "module load Stages/2024",
         'export MASTER_ADDR="${MASTER_ADDR}i"'),
        ("--gpus-per-node",),
    ),
    "kestrel": (
        {"gpus": 4, "account": "hpcapps", "mem_gb": 340},
        ("--account=hpcapps", "--gpus-per-node=4", "--cpus-per-task=32", "--mem=340G"),
        ("--partition", "--gres"),
    ),
    "leonardo-booster": (
        {"nodes": 2, "gpus": 4, "account": "tra24_x", "qos": "boost_qos_dbg", "time_min": 30},
        ("--partition=boost_usr_prod", "--account=tra24_x", "--gres=gpu:4", "--cpus-per-task=8",
         "--qos=boost_qos_dbg", "--time=00:30:00"),
        ("--gpus-per-node",),
    ),
    "lumi-g": (
        {"nodes": 2, "gpus": 8, "account": "project_465000001", "partition": "standard-g",
         "env": "pytorch"},
        ("--partition=standard-g", "--account=project_465000001", "--gpus-per-node=8",
         "--cpus-per-task=7", f"--cpu-bind=mask_cpu:{MASKS}",
         "module use /appl/local/csc/modulefiles", "module load pytorch/2.7",
         'export MIOPEN_USER_DB_PATH="/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"'),
        ("--gres",),
    ),
    "mahuika": (
        {"gpus": 2, "gpu_type": "h100"},
        ("--gpus-per-node=h100:2",),
        ("--gres", "--partition", "--account"),
    ),
    "pelle": (
        {"gpus": 1, "gpu_type": "l40s", "account": "uppmax2026-1-1"},
        ("--partition=gpu", "--account=uppmax2026-1-1", "--gpus-per-node=l40s:1"),
        ("--gres",),
    ),
    "perlmutter": (
        {"nodes": 2, "gpus": 4, "account": "m1"},
        ("--account=m1", "--qos=regular", "--constraint=gpu", "--gpus-per-node=4",
         "--cpus-per-task=32", "--gpu-bind=none", "module load pytorch/2.0.1"),
        ("--partition", "--gres"),
    ),
    "roihu": (
        {"gpus": 4, "account": "project_1"},
        ("--partition=gpumedium", "--account=project_1", "--gres=gpu:gh200:4",
         "--cpus-per-task=72", "module load python-pytorch/2.10"),
        ("--gpus-per-node",),
    ),
    "snellius": (
        {"gpus": 4, "partition": "gpu_h100"},
        ("--partition=gpu_h100", "--gpus-per-node=4", "--cpus-per-task=16"),
        ("--gres", "--account"),
    ),
    "vera": (
        {"gpus": 0, "account": "C3SE2026-1-1", "env": "scipy"},
        ("--partition=vera", "--account=C3SE2026-1-1",
         "module load SciPy-bundle/2024.05-gfbf-2024a"),
        ("--gpus", "--gres"),
    ),
}  # fmt: skip


def fit(name: str, **changes: Any) -> Job:
    site = find_site(name, (BUILTIN,))
    asked = JOBS[name][0] | changes
    spec = JobSpec(**{"target": "ddp", **asked})
    return resolve(spec, site, load_workload("ddp", (BUILTIN,)), python=sys.executable)


def script(job: Job) -> str:
    place = RunPlace(run_id="RUN", dir=Path("/proj/runs/RUN"), cwd="/proj/code")
    return make_script(job, place, (BUILTIN,)).text


def leaves(values: Any, above: str = "") -> Iterator[str]:
    for key, (value, _) in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def test_every_profile_has_its_job_here() -> None:
    assert sorted(JOBS) == NAMES
    assert len(NAMES) >= 12


@pytest.mark.parametrize("name", NAMES)
def test_the_script_of_a_job_that_fits_is_what_the_cluster_asks_for(name: str) -> None:
    text = script(fit(name))
    _, there, missing = JOBS[name]
    assert [part for part in there if part not in text] == []
    assert [part for part in missing if part in text] == []
    assert late_options(text) == []
    assert bash_errors(text) == []
    assert shellcheck(text) == []


@pytest.mark.parametrize("name", NAMES)
def test_each_value_of_a_profile_says_where_and_when_it_was_read(name: str) -> None:
    site = find_site(name, (BUILTIN,))
    keys = list(leaves(read_document(site.path, "a site").values))
    own = ("description", "url", *OWN_CHOICE)
    unsaid = [key for key in keys if not key.startswith("sources.") and key not in own]
    assert [key for key in unsaid if not sources_of(key, site.sources)] == []
    assert all(re.fullmatch(r"2026-\d\d-\d\d", row.read) for row in site.sources)
    assert "not tried there" in site.description


@pytest.mark.parametrize("name", NAMES)
def test_a_site_is_shown_with_its_sources_and_their_dates(cli: Cli, name: str) -> None:
    shown = cli("sites", "show", name).out
    site = find_site(name, (BUILTIN,))
    for number, row in enumerate(site.sources, start=1):
        assert f"\n  [{number}] {row.url} (" in shown
        assert f"read {row.read})" in shown
    # Each is the source of something that is shown.
    body = shown.partition("where it was read")[0]
    cited = {int(digits) for marks in re.findall(r"\[([\d, ]+)\]$", body, re.MULTILINE)
             for digits in marks.split(", ")}  # fmt: skip
    below = {number for number, row in enumerate(site.sources, start=1)
             if all(key.count(".") > 1 for key in row.gives)}  # fmt: skip
    assert cited | below == set(range(1, len(site.sources) + 1))


def test_the_page_of_sites_has_every_profile_and_says_that_none_was_run() -> None:
    text = PAGE.read_text()
    rows = re.findall(r"^\| `([\w.-]+)` \|", text, re.MULTILINE)
    assert rows == NAMES
    assert "None of them has been run on its cluster." in text


def test_the_commands_of_the_page_of_sites_work(cli: Cli) -> None:
    lines = [row for block in blocks("docs/sites.md") if block.language == "sh"
             for row in block.text.splitlines()]  # fmt: skip
    assert len(lines) == 2
    for row in lines:
        name, *words = row.split()
        answer = cli(*words)
        assert (name, answer.status) == ("hpckit", 0), answer.err
        assert "lumi-g" in answer.out


def test_masks_are_for_ranks_that_have_a_whole_node() -> None:
    assert "mask_cpu" in script(fit("lumi-g"))
    assert "mask_cpu" in script(fit("lumi-g", nodes=1, partition="small-g"))
    for changes in (
        {"gpus": 4},
        {"cpus_per_task": 4},
        {"launcher": "torchrun"},  # one task of a node starts all its ranks
        {"gpus": 0, "tasks_per_node": 8},
    ):
        assert "mask_cpu" not in script(fit("lumi-g", **changes)), changes


def test_nodes_that_are_given_whole_are_said_to_be_charged_whole() -> None:
    (note,) = fit("lumi-g", gpus=1).notes
    assert note == (
        "partition 'standard-g' of site 'lumi-g' gives whole nodes: this job has, and is charged "
        "for, all 8 GPUs of each node, and asks for 1."
    )
    assert fit("lumi-g").notes == ()
    assert fit("lumi-g", gpus=1, nodes=1, partition="small-g").notes == ()
    assert fit("dardel", gpus=0, partition="main").notes == ()


SOURCED = """\
description: d
gpus: {per_node: 4, cpus_per_gpu: 8}
partitions: {a.b: {max_time: 1h}}
sources:
  page: {url: "https://x.example", edition: 2025-01-02, read: 2026-11-23, gives: [gpus, partitions]}
  other: {url: "http://y.example", read: 2026-11-22, gives: gpus.per_node}
"""


def sourced(tmp_path: Path, text: str = SOURCED) -> Site:
    path = tmp_path / "box.yaml"
    path.write_text(text)
    return read_site(path)


def test_the_nearest_source_is_that_of_a_value(tmp_path: Path) -> None:
    page, other = sourced(tmp_path).sources
    assert page == Source(
        name="page", url="https://x.example", edition="2025-01-02", read="2026-11-23",
        gives=("gpus", "partitions"),
    )  # fmt: skip
    assert other.edition is None
    assert page.when() == "text of 2025-01-02, read 2026-11-23"
    assert other.when() == "read 2026-11-22"
    expected = {
        "gpus.cpus_per_gpu": (page,),
        "gpus.per_node": (other,),
        "partitions.a.b.max_time": (page,),
        "modules": (),
        "gpus": (page,),
    }
    assert {key: sources_of(key, (page, other)) for key in expected} == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gives: gpus.per_node", "gives: gpus.nodes", r"box.yaml:6: 'gives' names 'gpus.nodes'"),
        ("gives: gpus.per_node", "gives: [sources]", r"box.yaml:6: 'gives' names 'sources'"),
        (", gives: gpus.per_node", "", r"box.yaml:6: source 'other' needs 'gives:'"),
        ("http://y.example", "file:///x", r"'url' is 'file:///x', must be an address"),
        ("http://y.example", "http://y.example/a b", r"must be an address"),
        ("2026-11-22", "yesterday", r":6: 'read' is 'yesterday', must be a day: YYYY"),
        ("2026-11-22", "2026-13-40", r"must be a day"),
        ("2025-01-02", "''", r"source 'page' needs 'edition:'"),
        ("read: 2026-11-22, ", "", r"source 'other' needs 'read:'"),
        ("read: 2026-11-22", "reed: 1, read: 2026-11-22", r"unknown key 'reed' in source 'other'"),
        ("cpus_per_gpu: 8", "cpu_masks: [0xfe]", r":2: 'cpu_masks' has 1 masks.*'per_node' is 4"),
        ("cpus_per_gpu: 8", "cpu_masks: ['', 0x1, 0x2, 0x3]", r"'cpu_masks' holds ''"),
        ("cpus_per_gpu: 8", "cpu_masks: [1, 2, 3, 4]", r"'cpu_masks' holds '1'"),
        ("cpus_per_gpu: 8", "cpu_masks: ['0x1,0x2 --x', a, b, c]", r"must be hexadecimal numbers"),
        ("max_time: 1h", "whole_nodes: 1", r"'whole_nodes' is 1, must be true or false"),
    ],
)  # fmt: skip
def test_what_no_source_or_mask_can_be_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in SOURCED
    with pytest.raises(ConfigError, match=message):
        sourced(tmp_path, SOURCED.replace(old, new))


def test_a_site_of_no_whole_file_is_not_looked_for_elsewhere(here: Path) -> None:
    # Only what tells sites apart is read of the others.
    (here / "templates" / "sites").mkdir(parents=True)
    (here / "templates" / "sites" / "aaa.yaml").write_text("description: d\ngpus: {per_node: x}\n")
    assert find_site("lumi-g", search_path()).name == "lumi-g"


def test_the_page_names_every_check_that_can_be_switched_off() -> None:
    found = re.search(r"To switch one check off: (.*?)\n\n", PAGE.read_text(), re.DOTALL)
    assert found is not None
    names = re.findall(r"[a-z-]+", " ".join(re.findall(r"`(?:--skip-check )?([^`]*)`", found[1])))
    assert sorted(names) == sorted(CHECKS)
