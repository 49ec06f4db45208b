"""Gives the tests of a page one Chromium."""

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Chromium, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    yield from chromium()
