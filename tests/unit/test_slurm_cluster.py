from dataclasses import replace

import pytest

from hpckit.slurm.cluster import (
    Gres,
    longest_min,
    meant,
    parse_gres,
    parse_scontrol_config,
    parse_scontrol_partitions,
    parse_sinfo,
    slurm_version,
    srun_mpi_types,
)
from tests.unit.recorded import slurm_said


def test_partitions_have_their_limits() -> None:
    found = parse_scontrol_partitions(slurm_said("scontrol-partition-22.05.8.txt"))
    assert [one.name for one in found] == ["gpu", "short", "urgent"]
    gpu, short, _ = found
    assert (gpu.default, gpu.max_time_min) == (True, 1440)
    assert (short.default, short.max_time_min) == (False, 30)
    assert (gpu.state, gpu.nodes) == ("UP", ("c1", "c2"))
    assert (gpu.max_nodes, gpu.gpus_per_node) == (None, None)


def test_a_job_may_name_several_partitions_and_the_longest_limit_counts() -> None:
    found = parse_scontrol_partitions(slurm_said("scontrol-partition-22.05.8.txt"))
    assert [row.name for row in meant(found, None)] == ["gpu"]
    assert [row.name for row in meant(found, "short,gpu")] == ["gpu", "short"]
    assert longest_min(meant(found, "short")) == 30
    assert longest_min(meant(found, "short,gpu")) == 1440
    assert longest_min([replace(row, max_time_min=None) for row in found[:1]] + [*found]) is None
    assert longest_min(meant(found, "gone")) is None


def test_partitions_on_one_line_of_a_later_slurm_are_read() -> None:
    whole, empty = parse_scontrol_partitions(slurm_said("scontrol-partition-24.11-documented.txt"))
    assert (whole.max_nodes, whole.max_time_min, whole.state) == (16, None, "DRAIN")
    assert whole.nodes == ("g01", "g02", "g03", "g04", "g10", "login")
    assert (empty.nodes, empty.max_time_min) == ((), 151)


def test_nodes_have_their_gpus() -> None:
    (group, *_) = parse_sinfo(slurm_said("sinfo-22.05.8.txt"))
    assert (group.partition, group.nodes, group.cpus) == ("gpu", ("c1", "c2"), 8)
    assert (group.memory_mb, group.gpus) == (20000, 4)
    assert group.gres == (Gres(name="gpu", type="h200", count=4),)


def test_nodes_that_differ_are_told_apart() -> None:
    groups = parse_sinfo(slurm_said("sinfo-24.05-documented.txt"))
    assert [group.gpus for group in groups] == [4, 6, 4, 0, 28]
    assert groups[2].memory_mb == 515000
    assert (groups[3].cpus, len(groups[3].nodes)) == (128, 100)


@pytest.mark.parametrize(
    ("text", "gres"),
    [
        ("gpu:h200:4(S:0-1)", [("gpu", "h200", 4)]),
        ("gpu:a100:4,gpu:t4:2", [("gpu", "a100", 4), ("gpu", "t4", 2)]),
        ("gpu:4", [("gpu", None, 4)]),
        ("gpu", [("gpu", None, 1)]),
        ("gpu:a100", [("gpu", "a100", 1)]),
        ("craynetwork:4,gpu:a100:4(S:0,1)", [("craynetwork", None, 4), ("gpu", "a100", 4)]),
        ("nic:2K", [("nic", None, 2048)]),
        ("gpu:m60:no_consume:2", [("gpu", "m60", 2)]),
        ("gpu:no_consume:2(S:0)", [("gpu", None, 2)]),
        ("gpu:no_consume", [("gpu", None, 1)]),
        (
            "bandwidth:lustre:no_consume:4g,gpu:1",
            [("bandwidth", "lustre", 1 << 32), ("gpu", None, 1)],
        ),
        ("gpu:" + "9" * 5000, []),
        ("(null)", []),
        ("", []),
        (":::", []),
    ],
)
def test_gres_is_name_type_and_count(text: str, gres: list[tuple[str, str | None, int]]) -> None:
    assert [(one.name, one.type, one.count) for one in parse_gres(text)] == gres


def test_the_configuration_is_names_and_values() -> None:
    config = parse_scontrol_config(slurm_said("scontrol-config-22.05.8.txt"))
    assert config["ClusterName"] == "box"
    assert config["EnforcePartLimits"] == "NO"
    assert config["AuthInfo"].startswith("socket=")


def test_mpi_types_are_read_from_each_versions_words() -> None:
    recorded = srun_mpi_types(slurm_said("srun-mpi-22.05.8.txt"))
    assert recorded == ("pmix", "none", "cray_shasta", "pmi2", "pmix_v4")
    older = srun_mpi_types(slurm_said("srun-mpi-20.11-documented.txt"))
    assert older == ("none", "pmix_v3", "openmpi", "pmi2", "pmix")
    assert srun_mpi_types("") == ()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("slurm 24.11.5\n", (24, 11, 5)),
        ("slurm-wlm 22.05.8\n", (22, 5, 8)),
        ("slurm 25.05.0-0rc1", (25, 5, 0)),
        ("command not found", None),
    ],
)
def test_versions_are_numbers(text: str, version: tuple[int, int, int] | None) -> None:
    assert slurm_version(text) == version
