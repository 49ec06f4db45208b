"""The door for files that others may have written."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from hpckit.errors import OutsideError
from hpckit.files import (
    MAX_DEPTH,
    DamagedFileError,
    open_regular,
    parse_json,
    read_bytes,
    read_json,
    read_tail,
    replace_file,
    write_shown,
)


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_bytes, read_json, lambda path: read_tail(path, 10)):
        with pytest.raises(DamagedFileError, match="not a regular file"):
            read(tmp_path / "pipe")


def test_folders_devices_and_links_to_them_are_refused(tmp_path: Path) -> None:
    (tmp_path / "zero").symlink_to("/dev/zero")
    for path in (tmp_path, tmp_path / "zero"):
        with pytest.raises(DamagedFileError, match="not a regular file"):
            read_bytes(path)


def test_a_sparse_file_is_refused_by_its_size_alone(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(6 * 2**30)
    with pytest.raises(DamagedFileError, match="6442450944 bytes"):
        read_bytes(tmp_path / "sparse")
    assert read_tail(tmp_path / "sparse", 5) == bytes(5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "JSON"),
        ("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "nested"),
        ('{"rank": ' + "9" * 5000 + "}", "5000 digits"),
        ("1e999", "too large"),
        ("{", "JSON"),
        (b"\xff\xfe{", "JSON"),
    ],
)
def test_hostile_json_is_one_error(text: str | bytes, why: str) -> None:
    with pytest.raises(DamagedFileError, match=why):
        parse_json(text)


def test_depth_counts_what_has_something_in_it() -> None:
    wide = "[" * (MAX_DEPTH - 1) + "[], {}, " * 1000 + '{"a": []}' + "]" * (MAX_DEPTH - 1)
    assert parse_json(wide)
    with pytest.raises(DamagedFileError, match="nested"):
        parse_json(wide.replace('"a": []', '"a": [0]'))


def test_what_python_writes_for_unknown_reads_as_unknown() -> None:
    assert parse_json('{"loss": NaN, "best": -Infinity, "n": 3}') == {
        "loss": None,
        "best": None,
        "n": 3,
    }


def test_a_file_is_replaced_whole_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, "one")
    replace_file(path, b"two")
    assert path.read_text() == "two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_that_its_check_refuses_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, "one")

    def refuse(beside: Path) -> None:
        assert beside.read_text() == "two"
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        replace_file(path, "two", check=refuse)
    assert path.read_text() == "one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def full(beside: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        replace_file(path, "one", check=full)
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_files_place_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "bashrc").write_text("mine")
    (tmp_path / "file").symlink_to(tmp_path / "bashrc")
    replace_file(tmp_path / "file", "text")
    assert (tmp_path / "bashrc").read_text() == "mine"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("read", [read_bytes, lambda path: read_tail(path, 10)])
def test_a_file_that_another_machine_replaced_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], bytes]
) -> None:
    """NFS calls the old one stale; a run's record is replaced, not written over."""
    path = tmp_path / "run.json"
    path.write_bytes(b"{}")
    fails = [OSError(errno.ESTALE, "Stale file handle")]

    def opened(name: Path, **words: Any) -> IO[bytes]:
        if fails:
            raise fails.pop()
        return open_regular(name, **words)

    monkeypatch.setattr("hpckit.files.open_regular", opened)
    assert read(path) == b"{}"
    fails += [OSError(errno.ESTALE, "Stale file handle")] * 2
    with pytest.raises(OSError, match="Stale"):
        read(path)
    fails[:] = [OSError(errno.EIO, "Input/output error")]
    with pytest.raises(OSError, match="Input"):
        read(path)


def test_a_page_is_written_into_a_pipe(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, link):
        assert write_shown(path, "through", "page") == path
        assert os.read(reader, 99) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_a_device_is_written_into_and_stays_one(tmp_path: Path) -> None:
    write_shown(Path(os.devnull), "gone", "page")
    assert Path(os.devnull).is_char_device()
    with pytest.raises(OutsideError, match="The page '/dev/full' cannot be written: No space"):
        write_shown(Path("/dev/full"), b"x" * 9999, "page")
    assert Path("/dev/full").is_char_device()
    with pytest.raises(OutsideError, match="Is a directory"):
        write_shown(tmp_path, "text", "page")


def test_somebody_elses_link_to_a_pipe_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing would wait for a reader, and tell it what the page says."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "page").symlink_to(tmp_path / "pipe")
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    if os.getuid() == 0:  # root's are followed
        os.lchown(tmp_path / "page", 54321, -1)
    write_shown(tmp_path / "page", "text", "page")
    assert (tmp_path / "page").read_text() == "text"
    assert (tmp_path / "pipe").is_fifo()
