import base64
import gzip
import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.stats.js1 import Js1, decode, from_record, jobstats_record
from hpckit.stats.summary.figures import GpuUse, JobUse, NodeUse
from tests.conftest import add_program
from tests.js1 import encode
from tests.pages import to_type

RECORD: dict[str, Any] = {
    "gpus": 2,
    "nodes": {
        "c1": {
            "cpus": 4,
            "total_time": 200.5,
            "total_memory": 1000,
            "used_memory": 250,
            "gpu_utilization": {"0": 98.6, "1": 0},
            "gpu_used_memory": {"0": 40, "1": 0},
            "gpu_total_memory": {"0": 80, "1": 80},
        },
        "c2": {"cpus": 4, "total_time": 199.5, "total_memory": 1000, "used_memory": 750},
    },
    "total_time": 100,
}


def packed(value: bytes) -> str:
    return "JS1:" + base64.b64encode(value).decode()


def squeezed(text: bytes) -> str:
    return packed(gzip.compress(text, mtime=0))


def node(**cells: object) -> dict[str, Any]:
    return {"nodes": {"c1": cells}, "total_time": 100, "gpus": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["cpus", "total_time", "total_memory", "used_memory", "gpu_utilization", "gpu_used_memory"]
)
GPUS = st.dictionaries(st.sampled_from(["0", "1", "x", "0.1", "9" * 5000]), JSON, max_size=3)
NODES = st.dictionaries(st.text(max_size=3), st.dictionaries(KEYS, JSON | GPUS) | JSON, max_size=3)


@given(st.dictionaries(st.text(), JSON), NODES)
def test_what_is_written_is_what_is_read(record: dict[str, Any], nodes: dict[str, Any]) -> None:
    whole = {**record, "nodes": nodes}
    found = decode(encode(whole)).record
    assert json.dumps(found, sort_keys=True) == json.dumps(whole, sort_keys=True)
    assert encode(whole) == encode(json.loads(json.dumps(whole)))


@given(JSON, JSON, NODES)
def test_no_record_is_a_crash_or_a_number_that_is_none(
    elapsed: object, gpus: object, nodes: dict[str, Any]
) -> None:
    answer = from_record({"nodes": nodes, "total_time": elapsed, "gpus": gpus})
    for value in answer.summary.values():
        assert value is None or (math.isfinite(value) and value >= 0)


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("JS1:Short", "fewer than two samples"),
        ("JS1:None", "no data"),
        ("js1:none", "no data"),  # sacctmgr of Slurm 22.05
        ("by hand; JS1:Short; JS1 is fine", "fewer than two samples"),
        (encode(RECORD).lower(), "damaged"),
        (encode(RECORD)[:-9], "damaged"),
        (encode(RECORD)[:-12], "damaged"),
        (encode(RECORD)[:16], "damaged"),
        ("JS1:H4s", "damaged"),
        ("JS1:====", "damaged"),
        (packed(b"not gzip"), "damaged"),
        (packed(gzip.compress(b"{}", mtime=0)[:-4]), "damaged"),
        (packed(gzip.compress(b"{}", mtime=0)[:-8] + b"\0" * 8), "damaged"),
        (squeezed(b"{"), "damaged"),
        (squeezed(b"\xff\xfe\xff"), "damaged"),
        (squeezed(b""), "damaged"),
        (squeezed(b"[" * 100_000), "damaged"),
        (squeezed(b'{"nodes":' + b"9" * 5000 + b"}"), "damaged"),
        (squeezed(b"[1]"), "no nodes"),
        (squeezed(b"3"), "no nodes"),
        (squeezed(b'"nodes"'), "no nodes"),
        (squeezed(b"{}"), "no nodes"),
        (squeezed(b'{"nodes":[]}'), "no nodes"),
        (squeezed(b'{"nodes":null}'), "no nodes"),
    ],
)
def test_a_comment_without_a_record_says_why(comment: str, words: str) -> None:
    found = decode(comment)
    assert found.record is None
    assert words in (found.trouble or "")


def test_a_comment_that_unpacks_to_64_mib_is_damaged() -> None:
    assert "damaged" in (decode(squeezed(b"0" * (64 << 20))).trouble or "")


@pytest.mark.parametrize("comment", ["", "hello", "JS1", "JS1:", "JS1: Short", "JS2:abc"])
def test_a_comment_of_others_is_no_trouble(comment: str) -> None:
    assert decode(comment) == Js1()


@pytest.mark.parametrize("around", ["{}", "note|{}|more", "a\n{}\nb", "x {} JS1:Short", '"{}"'])
def test_a_record_is_found_in_other_text(around: str) -> None:
    assert decode(around.format(encode(RECORD))).record == RECORD


@given(st.text() | st.text("JS1:ShorNne+/= ").map("JS1:".__add__))
def test_no_comment_is_a_crash(text: str) -> None:
    assert decode(text).record is None


def test_a_record_is_an_answer() -> None:
    answer = from_record(RECORD)
    assert answer.source == "JS1"
    assert answer.summary == {
        "gpu_utilization_percent": 49.3,
        "gpu_memory_used_percent": 25.0,
        "gpu_memory_peak_bytes": 40,
        "gpu_memory_total_bytes": 80,
        "cpu_s": 400.0,
        "cpu_efficiency_percent": 50.0,
        "memory_efficiency_percent": 50.0,
        "memory_peak_bytes": 750,
        "memory_limit_bytes": 1000,
        "gpu_hours": 2 * 100 / 3600,
    }
    first, second = answer.per_node
    assert (first.host, first.cores, first.cores_used, first.gpus) == ("c1", 4, 2.005, 2)
    assert (second.gpus, second.gpu_utilization_percent) == (0, None)
    assert [(gpu.index, gpu.utilization_percent) for gpu in answer.per_gpu] == [(0, 98.6), (1, 0.0)]


def test_a_requeued_jobs_record_may_lack_the_gpus_memory() -> None:
    # jobstats issues 5 and 13.
    cells = {"gpu_utilization": {"0": 5}, "gpu_used_memory": {"0": 7}}
    answer = from_record(node(**cells))
    assert answer.summary["gpu_utilization_percent"] == 5
    assert answer.summary["gpu_memory_used_percent"] is None
    assert answer.per_gpu[0].memory_total_bytes is None


@pytest.mark.parametrize(
    "value",
    [None, True, False, "50", [], {}, math.nan, math.inf, -1, 10**400, 1e300, 2**64 - 2],
)
def test_what_is_no_number_is_unknown(value: object) -> None:
    names = ("cpus", "total_time", "total_memory", "used_memory")
    record = node(
        **dict.fromkeys(names, value),
        **{f"gpu_{name}": {"0": value} for name in ("utilization", "used_memory", "total_memory")},
    )
    answer = from_record({**record, "total_time": value, "gpus": value})
    assert set(answer.summary.values()) == {None}
    assert (answer.per_node[0].cpu_s, answer.per_gpu[0].utilization_percent) == (None, None)


def test_over_100_is_kept_to_be_called_suspect() -> None:
    answer = from_record(node(gpu_utilization={"0": 130.0}, cpus=1, total_time=250))
    assert answer.summary["gpu_utilization_percent"] == 130.0
    assert answer.summary["cpu_efficiency_percent"] == 250.0


@pytest.mark.parametrize(
    ("key", "index"), [("3", 3), ("0.1", 0), ("x", None), ("", None), ("9" * 5000, None)]
)
def test_gpus_are_told_by_index_if_they_have_one(key: str, index: int | None) -> None:
    (gpu,) = from_record(node(gpu_utilization={key: 1})).per_gpu
    assert (gpu.index, gpu.utilization_percent) == (index, 1)


def test_a_node_that_is_no_object_is_left_out() -> None:
    record = {"nodes": {"c1": None, "c2": {"cpus": 1}}, "total_time": 5}
    assert [row.host for row in from_record(record).per_node] == ["c2"]


TWO: dict[str, Any] = {
    "cpus": 4, "total_time": 300, "total_memory": 1000, "used_memory": 500,
    "gpu_utilization": {"0": 90, "1": 90},
    "gpu_used_memory": {"0": 40, "1": 40}, "gpu_total_memory": {"0": 80, "1": 80},
}  # fmt: skip
OF_GPUS = {"gpu_utilization_percent", "gpu_memory_used_percent", "gpu_memory_peak_bytes"}
OF_NODES = {"cpu_s", "cpu_efficiency_percent", "memory_efficiency_percent", "memory_peak_bytes"}


def without(*names: str, **instead: object) -> dict[str, Any]:
    return {name: value for name, value in (TWO | instead).items() if name not in names}


@pytest.mark.parametrize(
    ("second", "gone"),
    [
        (TWO, set()),
        # Two nodes' CPU time over one node's cores gave 75 %.
        (without("cpus"), {"cpu_efficiency_percent"}),
        (without("cpus", cpus=0), {"cpu_efficiency_percent"}),
        (without("total_time"), {"cpu_s", "cpu_efficiency_percent"}),
        (without("used_memory"), {"memory_peak_bytes", "memory_efficiency_percent"}),
        (without("total_memory"), {"memory_limit_bytes", "memory_efficiency_percent"}),
        (without("gpu_utilization"), {"gpu_utilization_percent"}),
        (without(gpu_utilization={"0": 90}), {"gpu_utilization_percent"}),
        (without(gpu_utilization={"0": 90, "1": None}), {"gpu_utilization_percent"}),
        (without("gpu_used_memory"), {"gpu_memory_peak_bytes", "gpu_memory_used_percent"}),
        (without("gpu_total_memory"), {"gpu_memory_total_bytes", "gpu_memory_used_percent"}),
        ({}, {*OF_GPUS, *OF_NODES, "gpu_memory_total_bytes", "memory_limit_bytes"}),
        (None, {*OF_GPUS, *OF_NODES, "gpu_memory_total_bytes", "memory_limit_bytes"}),
    ],
)
def test_half_known_is_unknown(second: object, gone: set[str]) -> None:
    answer = from_record({"gpus": 4, "total_time": 100, "nodes": {"c1": TWO, "c2": second}})
    assert {name for name, value in answer.summary.items() if value is None} == gone
    assert [remark.note.code for remark in answer.remarks] == (["js1_partial"] if gone else [])
    # What one of them says is still there to be read.
    assert answer.per_node[0].cpu_efficiency_percent == 75
    assert [gpu.utilization_percent for gpu in answer.per_gpu[:2]] == [90, 90]


def test_what_slurm_gave_and_the_record_lacks_is_unknown() -> None:
    record = {"gpus": 2, "total_time": 100, "nodes": {"c1": TWO}}
    assert None not in from_record(record, nodes=1, gpus=2).summary.values()
    nodes = from_record(record, nodes=2, gpus=2)
    assert {nodes.summary[name] for name in OF_NODES} == {None}
    assert nodes.summary["gpu_utilization_percent"] == 90
    gpus = from_record(record, nodes=1, gpus=4)
    assert {gpus.summary[name] for name in OF_GPUS} == {None}
    assert from_record({**record, "gpus": 3}).summary["gpu_utilization_percent"] is None


def job(per_node: tuple[NodeUse, ...], *per_gpu: GpuUse, **values: Any) -> JobUse:
    return JobUse(job_id="7", elapsed_s=100.4, per_node=per_node, per_gpu=per_gpu, **values)


def test_what_is_not_known_is_left_out() -> None:
    assert jobstats_record(JobUse(job_id="7")) is None
    assert jobstats_record(JobUse(job_id="7", per_node=(NodeUse(host="c1"),))) is None
    assert jobstats_record(JobUse(job_id="7", elapsed_s=5.0)) is None
    bare = job((NodeUse(host="c1"),), GpuUse(host="c1", index=0), GpuUse(host="c1"))
    assert jobstats_record(bare) == {"gpus": 2, "nodes": {"c1": {}}, "total_time": 100}


def test_a_gpu_that_was_read_for_a_part_of_its_job_gives_no_mean_to_others() -> None:
    for covered, elapsed, known in (
        (79.0, 7200.0, False),
        (81.0, 7200.0, True),
        (20.0, 70.0, True),
    ):
        gpu = GpuUse(host="c1", index=0, utilization_percent=90.0, covered_percent=covered,
                      hours=covered / 100 * elapsed / 3600)  # fmt: skip
        record = jobstats_record(replace(job((NodeUse(host="c1"),), gpu), elapsed_s=elapsed))
        assert record is not None
        assert ("gpu_utilization" in record["nodes"]["c1"]) is known


def test_a_jobs_record_is_read_back() -> None:
    whole = job(
        (
            NodeUse(
                host="c1", cores=4, cpu_s=200.4, memory_peak_bytes=250, memory_limit_bytes=1000
            ),
            NodeUse(host="c2", cores=4),
        ),
        GpuUse(host="c1", index=0, utilization_percent=98.64, memory_peak_bytes=40),
        GpuUse(host="c1", index=1, utilization_percent=0.0, memory_total_bytes=80),
        GpuUse(host="c2", index=0),
        gpus=3,
    )
    record = jobstats_record(whole)
    assert record is not None
    assert record["nodes"]["c2"] == {"cpus": 4}
    assert record["nodes"]["c1"]["gpu_utilization"] == {"0": 98.6, "1": 0.0}
    assert record["nodes"]["c1"]["gpu_used_memory"] == {"0": 40}
    found = decode(encode(record)).record
    assert found == record
    answer = from_record(record)
    assert [(gpu.host, gpu.index) for gpu in answer.per_gpu] == [("c1", 0), ("c1", 1)]
    assert answer.per_node[0].cpu_s == 200.0
    assert answer.summary["cpu_s"] is None
    assert answer.summary["gpu_hours"] == 3 * 100 / 3600


def test_slices_of_one_gpu_are_all_kept() -> None:
    slices = [
        GpuUse(host="c1", index=0, uuid=f"MIG-{number}", mig=True, memory_peak_bytes=number)
        for number in (1, 2)
    ]
    record = jobstats_record(job((NodeUse(host="c1"),), *slices, GpuUse(host="c1", index=1)))
    assert record is not None
    assert record["nodes"]["c1"]["gpu_used_memory"] == {"0.0": 1, "0.1": 2}
    assert [gpu.memory_peak_bytes for gpu in from_record(record).per_gpu] == [1, 2]


AMOUNT = st.none() | st.integers(0, 2**62)
PERCENT = st.none() | st.floats(0, 100)


@given(
    st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 3), PERCENT, AMOUNT, AMOUNT), max_size=5),
)
def test_any_job_comes_back(nodes: list[Any], gpus: list[Any]) -> None:
    whole = job(
        tuple(
            NodeUse(host=f"c{at}", cpu_s=cpu, memory_peak_bytes=used, memory_limit_bytes=limit)
            for at, (cpu, used, limit) in enumerate(nodes)
        ),
        *(
            GpuUse(
                host="c0",
                index=index,
                utilization_percent=percent,
                memory_peak_bytes=used,
                memory_total_bytes=limit,
            )
            for index, percent, used, limit in gpus
        ),
    )
    record = jobstats_record(whole)
    assert record is not None
    assert decode(encode(record)).record == record
    answer = from_record(record)
    for row, (cpu, used, limit) in zip(answer.per_node, nodes, strict=True):
        assert (row.cpu_s is None) == (cpu is None)
        assert (row.memory_peak_bytes is None) == (used is None)
        assert (row.memory_limit_bytes is None) == (limit is None)
    known = [gpu[1] for gpu in gpus if gpu[1] is not None]
    back = [gpu.utilization_percent for gpu in answer.per_gpu]
    assert sorted(value for value in back if value is not None) == pytest.approx(
        sorted(known), abs=0.051
    )


def test_the_line_for_operators_stores_what_is_read(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = [row.text for row in to_type("docs/from-jobstats.md") if "scontrol" in row.text]
    add_program(here.parent / "bin" / "hpckit", f"#!/bin/sh\necho '{json.dumps(RECORD)}'\n")
    add_program(here.parent / "bin" / "scontrol", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    done = subprocess.run(["bash", "-ec", line], capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    assert words[:2] == ["update", "JobId=4242"]
    assert decode(words[2].removeprefix("AdminComment=")).record == RECORD
