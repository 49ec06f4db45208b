import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.errors import RequestError
from hpckit.payload.rendezvous import first_host
from hpckit.slurm.hostlist import expand, nodes_or_none


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("login", ("login",)),
        ("c[1-2,05-07],login", ("c1", "c2", "c05", "c06", "c07", "login")),
        ("gpu-a[1-2]b[3-4]", ("gpu-a1b3", "gpu-a1b4", "gpu-a2b3", "gpu-a2b4")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("n[8-11]", ("n8", "n9", "n10", "n11")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("n[3]", ("n3",)),
        ("n[1-2]-ib,m", ("n1-ib", "n2-ib", "m")),
        ("[1-2]", ("1", "2")),
        ("b,a", ("b", "a")),
    ],
)
def test_a_list_becomes_names_in_its_order(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names
    assert first_host(text) == (names[0] if names else "")


@pytest.mark.parametrize(
    "text",
    ["c[1-2", "c1-2]", "c[[1-2]]", "c[1[2]]", "c[]", "c[a-b]", "c[2-1]", "a,,b", "a,", ",a", "a b"],
)
def test_a_list_that_cannot_be_read_is_shown(text: str) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        expand(text)


@pytest.mark.parametrize("text", ["c[1-99999999999]", "c[1-300]d[1-300]", "a[1-60000],b[1-60000]"])
def test_a_list_too_long_to_be_true_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="more than 65536 nodes"):
        expand(text)


@pytest.mark.parametrize("text", ["", "(null)", "None assigned", "N/A", "c[1"])
def test_a_job_without_readable_nodes_has_none(text: str) -> None:
    assert nodes_or_none(text) is None


ranges = st.tuples(st.integers(0, 2000), st.integers(0, 50), st.integers(1, 5))
prefixes = st.from_regex(r"[a-z][a-z-]{0,5}", fullmatch=True)


@given(st.lists(st.tuples(prefixes, st.lists(ranges, min_size=1, max_size=4)), max_size=4))
def test_any_list_expands_to_what_it_was_made_of(
    groups: list[tuple[str, list[tuple[int, int, int]]]],
) -> None:
    items, names = [], []
    for prefix, spans in groups:
        parts = []
        for low, more, width in spans:
            first = str(low).zfill(width)
            parts.append(f"{first}-{str(low + more).zfill(width)}" if more else first)
            names += [prefix + str(n).zfill(width) for n in range(low, low + more + 1)]
        items.append(f"{prefix}[{','.join(parts)}]")
    assert expand(",".join(items)) == tuple(names)


@given(st.text(alphabet="ab01[],- %", max_size=30))
def test_any_text_is_names_or_a_request_error(text: str) -> None:
    with contextlib.suppress(RequestError):
        assert all("[" not in name for name in expand(text))
