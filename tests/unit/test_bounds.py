"""Numbers of any length, and spans of any length, cost no more than others."""

from array import array
from pathlib import Path

import pytest

from hpckit.documents import read_document
from hpckit.errors import ConfigError, RequestError
from hpckit.slurm.hostlist import expand
from hpckit.stats.js1 import decode
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import Header, Sample, file_name
from hpckit.stats.summary.clock import _bins, bin_width_s
from hpckit.units import parse_duration_s, parse_minutes, parse_moment
from tests.js1 import encode

LONG = "9" * 5000


def test_long_numbers_of_slurm_are_no_numbers() -> None:
    assert parse_duration_s(LONG) is None
    assert parse_duration_s(f"{LONG}-00:00:00") is None
    assert parse_moment(LONG) is None
    with pytest.raises(RequestError, match="not a duration"):
        parse_minutes(LONG)


@pytest.mark.parametrize("text", [f"c[1-{LONG}]", f"c[{LONG}]", "c[1-99999999999]"])
def test_endless_hostlists_are_refused_in_a_short_line(text: str) -> None:
    with pytest.raises(RequestError) as raised:
        expand(text)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("text", [f"a: {LONG}", f"a: 0x{'f' * 5000}"])
def test_endless_numbers_in_yaml_are_an_error_of_ours(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_document(path, "a site")
    assert len(str(raised.value)) < 400


def test_yaml_is_measured_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with path.open("wb") as stream:
        stream.truncate(6 << 30)
    with pytest.raises(ConfigError, match="6442450944 bytes"):
        read_document(path, "a site")


def test_a_span_of_any_length_has_as_many_bins_as_samples() -> None:
    times = array("Q", [0, 1_000_000, 10**18])
    found = _bins(times, [0, 1_000_000, 1_000_000], 0, 1_000_000)
    assert [(row.number, row.first, row.last) for row in found] == [
        (0, 0, 1),
        (1, 1, 2),
        (10**12, 2, 3),
    ]
    assert 1e15 / bin_width_s(1e15) <= 400


def test_samples_of_no_possible_time_are_left_out_and_counted(tmp_path: Path) -> None:
    encode_one = encoder(0)
    header = Header(
        host="n0", boot_id="b", pid=7, epoch_us=10**15, mono_us=5, interval_us=1_000_000
    )
    times = (10, 20, 10**18, 15, 30)
    path = tmp_path / file_name("n0", 0, 7)
    path.write_bytes(b"".join(map(encode_one, (header, *(Sample(mono_us=t) for t in times)))))
    columns = read_columns(path, 0)
    assert columns is not None
    assert list(columns.times) == [10, 20, 30]
    assert columns.damage.astray == 2


@pytest.mark.long
def test_a_jobstats_record_has_no_more_nodes_than_slurm() -> None:
    said = decode(encode({"nodes": {str(n): {} for n in range(70_000)}}))
    assert said.record is None
    assert "70000 nodes" in (said.trouble or "")
