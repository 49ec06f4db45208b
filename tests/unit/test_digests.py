"""SHA sums are the same, whoever works them out."""

import hashlib
import sys

import pytest

from hpckit import digests


@pytest.mark.parametrize("size", [3, 1 << 20])
@pytest.mark.parametrize("openssl", [False, True])
def test_sums_are_those_of_hashlib(
    size: int, openssl: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not openssl:
        monkeypatch.delitem(sys.modules, "_hashlib", raising=False)
    content = b"x" * size
    for name in ("sha1", "sha256"):
        later = getattr(digests, name)(size=size)
        later.update(content)
        for digest in (later, getattr(digests, name)(content)):
            own = type(digest).__module__ in ("_sha1", "_sha2", "_sha256")
            assert own == (size == 3 and not openssl)
            assert digest.hexdigest() == hashlib.new(name, content).hexdigest()


def test_a_python_without_sums_of_its_own_has_openssls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "_hashlib", raising=False)
    monkeypatch.setitem(sys.modules, "_sha1", None)
    assert digests.sha1().hexdigest() == hashlib.sha1().hexdigest()
