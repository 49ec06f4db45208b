"""From what programs of five releases of Slurm say to a site: read, or honestly declined."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpckit.detect.answers import choose_mpi
from hpckit.detect.login_node import (
    Mount,
    file_system,
    is_shared,
    likely_folders,
    module_systems,
    parse_mountinfo,
)
from hpckit.detect.page import host_pattern, quoted, site_page
from hpckit.sites import PartitionLimits, Site
from tests.conftest import examples
from tests.unit.detected import HERE, VERSIONS, cluster, load, site


def limits(found: Site) -> dict[str, tuple[int | None, ...]]:
    return {
        row.name: (
            row.max_time_min,
            row.max_nodes,
            row.gpus_per_node,
            row.cpus_per_node,
            row.mem_gb_per_node,
        )
        for row in found.partitions.values()
    }


@pytest.mark.parametrize(
    ("version", "partitions"),
    [
        ("20.11", {"batch": (2880, None, 4, 32, 125), "long": (None, 1, 4, 32, 125)}),
        ("21.08", {"gpu": (None, 8, 8, 64, 502)}),
        ("23.11", {"main": (720, None, 0, 128, 250)}),
        ("24.05", {"debug": (30, 2, 7, 64, 502), 'yes"no\\:': (2190, None, None, None, None)}),
        ("25.05", {"h200": (10080, None, 8, 192, 2000)}),
    ],
)
def test_partitions_of_each_release_reach_the_site(
    version: str, partitions: dict[str, tuple[int | None, ...]], tmp_path: Path
) -> None:
    assert limits(site(version, tmp_path)) == partitions


@pytest.mark.parametrize(
    ("version", "name", "default", "account", "mpi", "request_by", "per_node", "types"),
    [
        ("20.11", "oldone", "batch", None, "pmi2", "gres", 4, {}),
        ("21.08", "mixed", "gpu", None, "pmix", "gpus-per-node", None, {"a100": 4, "t4": 8}),
        ("23.11", "cpuonly", None, "onlyone", None, "gpus-per-node", None, {}),
        ("24.05", "slices", "debug", "lab", None, "gpus-per-node", 7, {"a100_1g.5gb": 7}),
        ("25.05", "newest", "h200", "ai", "pmix", "gpus-per-node", 8, {"h200": 8}),
    ],
)
def test_defaults_of_each_release_reach_the_site(
    version: str,
    name: str,
    default: str | None,
    account: str | None,
    mpi: str | None,
    request_by: str,
    per_node: int | None,
    types: dict[str, int],
    tmp_path: Path,
) -> None:
    found = site(version, tmp_path)
    assert cluster(version).name == name
    assert (found.partition, found.defaults.get("account"), found.mpi) == (default, account, mpi)
    assert (found.gpu_request, found.gpus_per_node) == (request_by, per_node)
    assert dict(found.gpu_types) == types
    assert found.identify == {"hostname": "login[0-9]*.example.org"}
    assert found.modules == "lmod"
    assert found.runs is None  # where runs go is for the user to say


def test_a_default_partition_shorter_than_an_hour_sets_the_time(tmp_path: Path) -> None:
    assert site("24.05", tmp_path).time_min == 30
    assert site("25.05", tmp_path).time_min == 60


def test_what_is_for_the_user_to_decide_is_there_as_a_comment() -> None:
    page = site_page(cluster("21.08"))
    assert '  # account: "phys"  # Slurm uses phys if none is given; yours, ' in page
    assert "sacctmgr show assoc: phys, chem\n" in page
    assert "  # qos:  # yours, by sacctmgr show assoc: normal, high\n" in page
    assert "elsewhere" not in page  # that account is of another cluster
    assert "  # per_node:  # nodes differ: 4, 8 (sinfo" in page
    assert "    gpus_per_node: 8  # sinfo, column %G, the most of any node\n" in page
    assert "# runs: $SCRATCH/runs  # /scratch/me: known shared (lustre)\n" in page
    assert "# runs: $HOME/runs  # /home/me: local (ext4)\n" in page
    assert "/home/me/work" not in page  # where init was started says nothing of the cluster


def test_partitions_one_cannot_use_are_named_and_no_more(tmp_path: Path) -> None:
    page = site_page(cluster("23.11"))
    assert "  # admin:  # RootOnly=YES\n" in page
    assert "  # secret:  # hidden, or not for your groups: sinfo --all\n" in page
    assert "# partition:  # this cluster has no default partition" in page
    assert "State=DOWN" in site_page(cluster("20.11"))
    down = cluster("20.11").partitions
    assert down is not None
    text = site_page(replace(cluster("20.11"), partitions=(replace(down[1], default=True),)))
    assert '#   partition: "long"  # Default=YES, State=DOWN' in text
    assert load(text, tmp_path).partition is None


def test_every_value_says_where_it_comes_from() -> None:
    for version in VERSIONS:
        for line in site_page(cluster(version)).splitlines()[5:]:
            bare = line.strip()
            heading = bare.endswith((":", "{}")) or bare.startswith("# ")
            assert heading or "  # " in line, line


def test_what_did_not_answer_is_unknown_and_never_a_value(tmp_path: Path) -> None:
    found = cluster("20.11")
    assert [row.what.split()[0] for row in found.unknown] == ["sacctmgr", "sacctmgr", "sacct"]
    page = site_page(found)
    assert "# NOT KNOWN: sacct " in page
    assert "# accounting (sacct) does not answer" in page
    assert "account:  # not known: sacctmgr" in page


@pytest.mark.parametrize(
    ("changed", "declined"),
    [
        ({"partitions": '{"partitions": []}'}, "scontrol show partition"),
        ({"nodes": "gpu;up;idle\n"}, "sinfo"),
        ({"config": "no configuration\n"}, "scontrol show config"),
        ({"mpi": "%%%\n"}, "srun --mpi=list"),
        ({"version": "slurm 19.05.8\n"}, "Slurm 19.05.8"),
        ({"version": "slurm 31.11.0\n"}, "Slurm 31.11.0"),
        ({"version": "slurm unversioned\n"}, "sinfo --version"),
    ],
)
def test_forms_nobody_knows_are_declined_by_name(
    changed: dict[str, str], declined: str, tmp_path: Path
) -> None:
    found = cluster("25.05", **changed)
    assert any(row.what.startswith(declined) for row in found.unknown)
    load(site_page(found), tmp_path)  # what is left is still a site
    assert f"# NOT KNOWN: {declined}" in site_page(found)


def test_without_sinfo_no_gpus_means_unknown(tmp_path: Path) -> None:
    found = site("25.05", tmp_path, nodes="")
    assert (found.gpus_per_node, dict(found.gpu_types)) == (None, {})
    assert found.partitions["h200"] == PartitionLimits(name="h200", max_time_min=10080)


@settings(max_examples=examples(40))
@given(name=st.text(min_size=1, max_size=20))
def test_names_of_others_can_write_nothing_into_the_yaml(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = cluster("25.05")
    assert found.partitions is not None
    odd = f"PartitionName={name} Default=YES MaxTime=60 State=UP\n"
    found = cluster(
        "25.05",
        partitions=odd,
        nodes=f"{name}|up|idle|8|8000|gpu:{name}:2|n1\n",
        associations=f"newest|{name}||\n",
        config=f"ClusterName = {name}\n",
    )
    page = site_page(found)
    read = load(page, tmp_path_factory.getbasetemp(), "odd")
    names = {row.name for row in found.partitions or ()}
    assert set(read.partitions) == names
    assert (read.setup, read.env, read.runs, read.srun_args) == ((), {}, None, ())
    assert all(line.isprintable() for line in page.split("\n"))


@given(text=st.text().filter(str.isprintable))
def test_quoted_text_is_read_back_as_it_was(text: str) -> None:
    import yaml

    assert yaml.safe_load(quoted(text)) == text


def test_control_characters_are_refused() -> None:
    with pytest.raises(ValueError, match="not printable"):
        quoted("a\nsetup: [rm]")
    found = cluster("25.05", partitions="PartitionName=a\x1b[31m Default=YES State=UP\n")
    assert found.partitions == ()
    assert found.left_out == ("partition 'a\\x1b[31m'",)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("login2.example.org", "login[0-9]*.example.org"),
        ("login12", "login[0-9]*"),
        ("head.example.org", "head.example.org"),
        ("localhost", None),
        ("localhost.localdomain", None),
        ("", None),
        ("a b", None),
    ],
)
def test_the_other_login_nodes_fit_too(name: str, pattern: str | None) -> None:
    assert host_pattern(name) == pattern


def test_a_machine_without_a_name_is_known_by_slurm_conf(tmp_path: Path) -> None:
    here = replace(HERE, hostname="localhost", slurm_conf="/etc/[x]/slurm.conf")
    page = site_page(cluster("25.05", here))
    assert load(page, tmp_path).identify == {"SLURM_CONF": "/etc/[[]x]/slurm.conf"}
    page = site_page(cluster("25.05", replace(here, slurm_conf=None)))
    assert load(page, tmp_path).identify == {}


@pytest.mark.parametrize(
    ("environ", "files", "found"),
    [
        ({"LMOD_CMD": "/l", "MODULESHOME": "/m"}, (), [("lmod", True)]),
        ({"MODULESHOME": "/m"}, (), [("tmod", True)]),
        ({}, ("/usr/share/lmod/lmod/init/bash",), [("lmod", False)]),
        (
            {"MODULESHOME": "/m", "SPACK_ROOT": "/s"},
            ("/usr/share/lmod/lmod/init/bash",),
            [("tmod", True), ("spack", True), ("lmod", False)],
        ),
        ({}, (), []),
    ],
)
def test_of_several_module_systems_the_shells_own_comes_first(
    environ: dict[str, str], files: tuple[str, ...], found: list[tuple[str, bool]]
) -> None:
    systems = module_systems(environ, lambda path: path in files)
    assert [(row.name, row.active) for row in systems] == found


MOUNTS = r"""
27 1 254:0 / / rw - ext4 /dev/vda rw
30 27 0:25 / /tmp rw - tmpfs tmpfs rw
31 27 0:40 / /scratch rw shared:5 - lustre 10.0.0.1@o2ib:/s rw
32 27 0:41 / /home rw - autofs auto.home rw
33 32 0:42 / /home/me rw - nfs4 nas:/me rw
34 27 0:43 / /with\040blank rw - fuse.unheard x rw
no mount
"""


@pytest.mark.parametrize(
    ("path", "kind", "shared"),
    [
        ("/scratch/me", "lustre", True),
        ("/home/me", "nfs4", True),
        ("/home/you", "autofs", None),
        ("/scratchy", "ext4", False),
        ("/tmp/x", "tmpfs", False),
        ("/with blank/x", "fuse.unheard", None),
    ],
)
def test_the_type_of_the_nearest_mount_says_whether_it_is_shared(
    path: str, kind: str, shared: bool | None
) -> None:
    mounts = tuple(parse_mountinfo(MOUNTS))
    assert file_system(path, mounts) == kind
    assert is_shared(kind) is shared


def test_a_mount_upon_another_hides_it() -> None:
    two = (Mount(point="/a", type="ext4"), Mount(point="/a", type="nfs"))
    assert file_system("/a/b", two) == "nfs"
    assert file_system("/a", ()) is None


def test_places_for_runs_are_the_sites_own_variables() -> None:
    environ = {"SCRATCH": "/scratch/me", "WORK": "relative", "PROJECT": "", "HPCKIT_RUNS": "/tmp"}
    mounts = tuple(parse_mountinfo(MOUNTS))
    found = likely_folders(environ, Path("/home/me"), Path("/tmp"), mounts)
    assert [(row.label, row.kind) for row in found] == [
        ("./", "local (tmpfs)"),
        ("$HPCKIT_RUNS", "local (tmpfs)"),
        ("$SCRATCH", "known shared (lustre)"),
        ("$HOME", "known shared (nfs4)"),
    ]


def test_the_best_known_kind_of_mpi_is_taken() -> None:
    assert choose_mpi(("none", "pmi2", "pmix", "pmix_v4"), {}) == "pmix"
    assert choose_mpi(("none", "openmpi"), {}) is None


def test_crays_own_kind_of_mpi_is_taken_on_a_cray_alone() -> None:
    listed, cray = ("none", "cray_shasta", "pmi2", "pmix"), {"SwitchType": "switch/hpe_slingshot"}
    assert choose_mpi(listed, cray) == "cray_shasta"
    assert choose_mpi(listed, {"SwitchType": "(null)"}) == "pmix"
    assert choose_mpi(listed[:-1], {}) == "pmi2"
    assert choose_mpi(listed[:2], {}) is None
