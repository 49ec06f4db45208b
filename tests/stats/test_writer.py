"""Disks that are full, read-only or gone: nothing is raised, and nothing is lost that fits."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpckit.stats.sampler.writer import LOST, Writer
from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.reading import read_records
from hpckit.stats.samples.records import End, Header, Sample, file_names, samples_files
from tests.patience import LONG_S
from tests.stats.conftest import Start, mounted
from tests.stats.stub.script import busy

pytestmark = pytest.mark.long


def broken(*codes: int | None, part: int | None = None):
    """An `append` that fails with these errors in turn; None writes, or `part` of it."""
    turns = list(codes)

    def append(file: int, text: bytes) -> int:
        code = turns.pop(0) if turns else None
        if code is None:
            return os.write(file, text if part is None or not turns else text[:part])
        raise OSError(code, os.strerror(code))

    return append


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE])
def test_lines_wait_for_the_disk(tmp_path: Path, code: int) -> None:
    writer = Writer(tmp_path / "new" / "file", append=broken(None, code, code), try_again_s=10)
    writer.put(b"one\n")
    assert writer.flush(0) is None
    writer.put(b"two\n")
    assert writer.flush(1) is None
    writer.put(b"three\n")
    assert writer.flush(5) is None  # too early to try again
    assert writer.flush(12) is None  # the second failure
    why = writer.flush(23)
    assert why is not None
    assert os.strerror(code) in why
    assert [line for line in writer.path.read_bytes().split(b"\n") if line] == [
        b"one",
        b"two",
        b"three",
    ]
    assert writer.flush(24) is None


def test_a_line_cut_short_is_written_again(tmp_path: Path) -> None:
    append = broken(None, errno.ENOSPC, part=6)
    writer = Writer(tmp_path / "file", append=append, try_again_s=1)
    for line in (b"one\n", b"two\n", b"six\n"):
        writer.put(line)
    writer.flush(0)
    writer.flush(5, last=True)
    lines = [line for line in writer.path.read_bytes().split(b"\n") if line]
    assert lines == [b"one", b"tw", b"two", b"six"]


def test_a_file_that_is_there_is_anothers(tmp_path: Path) -> None:
    names = file_names("n1", 0, 7)
    paths = (tmp_path / name for name in names)
    (tmp_path / "n1.r0.7.jsonl").write_text("theirs\n")
    (tmp_path / "n1.r0.4194311.jsonl").symlink_to(tmp_path / "elsewhere")
    writer = Writer(next(paths), others=paths, append=broken(None, errno.EIO), try_again_s=0)
    for at, line in enumerate((b"one\n", b"two\n", b"three\n")):
        writer.put(line)
        writer.flush(at)
    assert writer.path.name == "n1.r0.8388615.jsonl"
    assert writer.path.read_bytes().split() == [b"one", b"two", b"three"]
    assert (tmp_path / "n1.r0.7.jsonl").read_text() == "theirs\n"
    assert not (tmp_path / "elsewhere").exists()
    assert [file.path for file in samples_files(tmp_path)][-1] == writer.path


def test_what_waits_is_bounded_and_keeps_the_header(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "file", append=broken(*[errno.ENOSPC] * 10_000), try_again_s=0)
    writer.put(b"header\n")
    for at in range(3000):
        writer.put(b"%0400d\n" % at)
        writer.flush(at)
    assert 2000 < writer.dropped < 3000
    writer._append = os.write
    writer.flush(10**6, last=True)
    lines = writer.path.read_bytes().split()
    assert lines[0] == b"header"
    assert int(lines[-1]) == 2999
    assert len(lines) == 3001 - writer.dropped


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    writer = Writer(tmp_path / "file" / "samples" / "a", try_again_s=0)
    writer.put(b"one\n")
    assert writer.flush(0) is None
    writer.flush(1, last=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "size=64k"):
        yield folder


def test_a_full_disk_and_one_with_room_again(start: Start, small_disk: Path) -> None:
    fill = small_disk / "fill"
    running = start([busy(0)], interval=0.05, folder=small_disk)
    running.wait_for_samples(3)
    with pytest.raises(OSError, match="space"):
        fill.write_bytes(bytes(1 << 20))
    running.play_until(6)
    assert running.process.poll() is None
    fill.unlink()
    played = running.stop()  # the last write tries again whatever the time
    assert played.end is not None
    assert "No space left" in next(note.text for note in played.notes if note.code == "disk")
    assert played.damage.bad_lines <= 1
    times = [sample.mono_us for sample in played.samples]
    assert times == sorted(times)
    assert times[-1] - times[0] > 4e6


def test_a_folder_that_cannot_be_made_fails_nothing(start: Start) -> None:
    running = start([busy(0)], folder=Path("/proc/nowhere"))
    running.play_until(1.5)
    assert running.process.poll() is None
    running.process.terminate()
    assert running.process.wait(LONG_S) == LOST


def test_kill_9_leaves_a_readable_file(start: Start) -> None:
    running = start([busy(0)], interval=0.05)
    running.wait_for_samples(5)
    running.process.kill()
    running.process.wait()
    damage = Damage()
    [path] = running.folder.iterdir()
    records = list(read_records(path, damage))
    assert isinstance(records[0], Header)
    assert sum(isinstance(record, Sample) for record in records) >= 5
    assert not any(isinstance(record, End) for record in records)
    assert damage == Damage()
