"""What is free: nodes as several versions of Slurm print them, their sums, and who may use them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import hpckit
from hpckit.api.free import FreePart
from hpckit.slurm.cluster import Association, Partition, parse_scontrol_partitions
from hpckit.slurm.free import Block, free_parts, may_use
from hpckit.slurm.nodes import Node, NodeGpus, is_slice, parse_nodes
from tests.conftest import Answer, add_program
from tests.unit.recorded import RECORDED

Cli = Callable[..., Answer]


def recorded(version: str) -> str:
    return (RECORDED / "slurm" / f"scontrol-nodes-{version}.txt").read_text()


def partition(name: str, **changes: object) -> Partition:
    values = {
        "name": name, "default": False, "state": "UP", "max_time_min": None, "max_nodes": None,
        "nodes": (),
    }  # fmt: skip
    return Partition(**{**values, **changes})


def parts(version: str, *names: str | Partition) -> dict[tuple[str, str | None], FreePart]:
    rows = [partition(name) if isinstance(name, str) else name for name in names]
    found = free_parts(rows, parse_nodes(recorded(version)))
    return {(row.partition, row.gpu): row for row in found}


def test_jobs_and_reservations_take_what_they_take() -> None:
    one, two = parse_nodes(recorded("22.05.8"))
    assert (one.cpus, one.cpus_free, one.memory_free_mb) == (8, 5, 20000 - 4096)
    assert one.gpus == (NodeGpus(type="h200", total=4, free=2),)
    assert (one.open, one.idle, two.open, two.reserved, two.idle) == (
        True,
        False,
        False,
        True,
        True,
    )
    part = parts("22.05.8", "gpu")["gpu", "h200"]
    assert (part.gpus, part.gpus_free, part.cpus_free, part.nodes, part.open) == (8, 2, 5, 2, 1)
    assert (part.reserved, part.out) == (1, 0)
    assert part.largest == Block(gpus=2, cpus=5, memory_mb=15904, nodes=1)


def test_what_an_administrator_writes_is_no_field() -> None:
    _, drained = parse_nodes(recorded("drained-22.05.8"))
    assert (drained.out, drained.gpus[0].total, drained.open) == ("drain", 4, False)
    assert parts("drained-22.05.8", "gpu")["gpu", "h200"].out == 1


def test_20_11_has_types_without_a_name_and_nodes_that_do_not_answer() -> None:
    found = parts("20.11-documented", "batch", "long")
    part = found["batch", None]
    # A free GPU of a node whose cores are all taken is free for nobody.
    assert (part.gpus, part.gpus_free, part.cpus_free) == (12, 1, 24)
    assert (part.nodes, part.open, part.out) == (3, 1, 1)
    assert parse_nodes(recorded("20.11-documented"))[2].out == "not_responding"
    assert found["long", None].gpus == 8


def test_slices_of_gpus_are_types_of_their_own_and_shares_hide_what_is_free() -> None:
    found = parts("23.11-documented", "mig", "shard")
    assert {kind: (row.gpus, row.gpus_free, row.mig) for (_, kind), row in found.items()} == {
        "a100": (4, None, False),  # of `shard`, which comes last
        "a100_1g.5gb": (7, 4, True),
        "a100_3g.20gb": (4, 4, True),
    }
    assert found["mig", "a100"].gpus_free == 1
    assert found["mig", "a100"].cpus_free == 62 - 16
    assert found["mig", "a100"].memory_free_mb == 500000 - 131072
    shared = found["shard", "a100"]
    assert (shared.gpus_free, shared.largest) == (None, None)
    assert is_slice("1g.10gb")
    assert is_slice("nvidia_h100_80gb_hbm3_4g.40gb")
    assert not is_slice("h100")
    assert not is_slice(None)


def test_25_05_without_gres_used_is_read_by_what_accounting_counts() -> None:
    whole = partition("whole", exclusive=True)
    found = parts("25.05-documented", "normal", whole)
    part = found["normal", "gh200"]
    assert (part.gpus, part.gpus_free) == (12, 7)  # a node that sleeps is woken for a job
    assert (part.out, part.reserved, part.planned, part.open) == (1, 0, 1, 2)
    assert part.largest == Block(gpus=4, cpus=288, memory_mb=870000, nodes=1)
    # Jobs get whole nodes there: a part of one is for nobody.
    assert (found["whole", "gh200"].gpus_free, found["whole", "gh200"].open) == (4, 1)
    bare = found["normal", None]
    assert (bare.gpus, bare.cpus, bare.cpus_free, bare.nodes, bare.out) == (0, None, 44, 2, 1)


def test_a_partition_that_starts_nothing_has_nothing_free() -> None:
    part = parts("22.05.8", partition("gpu", state="DOWN"))["gpu", "h200"]
    assert (part.gpus_free, part.cpus_free, part.open, part.largest) == (0, 0, 0, None)


@pytest.mark.parametrize(
    "text", ["", "slurm_load_node error\n", "NodeName=x\n", "NodeName=x Gres=gpu:"]
)
def test_odd_answers_are_unknown_and_no_error(text: str) -> None:
    for node in parse_nodes(text):
        assert isinstance(node, Node)
        assert (node.cpus_free, node.open) == (None, False)


def test_who_may_use_a_partition_is_known_only_where_slurm_says_it() -> None:
    mine = [
        Association(cluster="c", account="lab", partition=None, qos=()),
        Association(cluster="c", account="other", partition="long", qos=()),
    ]
    assert may_use(partition("gpu"), None, None) is True
    assert may_use(partition("gpu", accounts=("lab",)), None, []) is None
    assert may_use(partition("gpu", accounts=("lab", "x")), mine, []) is True
    assert may_use(partition("gpu", accounts=("other",)), mine, []) is False
    assert may_use(partition("long", accounts=("other",)), mine, []) is True
    assert may_use(partition("gpu", denied_accounts=("lab",)), mine, []) is False
    assert may_use(partition("gpu", groups=("staff",)), mine, ["users"]) is False
    assert may_use(partition("gpu", groups=("staff",)), mine, ["staff"]) is True
    assert may_use(partition("gpu", groups=("staff",)), mine, None) is None


def test_partitions_say_who_is_shut_out() -> None:
    text = "PartitionName=a AllowGroups=staff,admin DenyAccounts=x OverSubscribe=EXCLUSIVE State=UP"
    (found,) = parse_scontrol_partitions(text)
    assert (found.groups, found.denied_accounts, found.exclusive) == (
        ("staff", "admin"),
        ("x",),
        True,
    )


def test_the_command_says_it_and_python_has_the_same(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    script = f"""#!/bin/sh
case "$*" in
  *partition*) echo "PartitionName=gpu AllowAccounts=lab Default=YES State=UP" ;;
  *) cat {RECORDED}/slurm/scontrol-nodes-22.05.8.txt ;;
esac
"""
    add_program(here.parent / "bin" / "scontrol", script)
    said = cli("free")
    assert said.status == 0
    (row,) = said.out.splitlines()[1:]
    assert row.split("  ")[0] == "gpu*"
    assert "2/8" in row
    assert "2 x h200, 5 CPUs" in row
    assert "1 in a reservation" in row
    part = json.loads(cli("free", "--json").out)["free"][0]
    assert (part["gpus_free"], part["largest"]["gpus"]) == (2, 2)
    assert hpckit.free().document()["free"][0] == part


def test_without_slurm_it_is_an_error(here: Path, cli: Cli) -> None:
    said = cli("free")
    assert (said.status, said.out) == (3, "")
    assert "hpckit: error: 'scontrol'" in said.err
