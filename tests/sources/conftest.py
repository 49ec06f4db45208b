"""One real Prometheus for all tests, and a site that names a server."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.report.accounting import keep_accounts, row
from tests.report.made import START
from tests.sources.series import Scraped, cgroups, dcgm, jobstats, nvidia_smi, openmetrics

LATER = START + 7200
# Job -> what the server knows of it. An id is of one scheme, so that each is found by asking.
RECORDED = (
    jobstats(Scraped(job="77")),
    cgroups(Scraped(job="77")),
    jobstats(Scraped(job="78", host="n2"), owner=True),
    cgroups(Scraped(job="78", host="n2"), by_path=True),
    dcgm(Scraped(job="79", host="n3", late_s=11.0)),
    cgroups(Scraped(job="79", host="n3", every_s=30.0)),
    nvidia_smi(Scraped(job="80", host="n4")),
    cgroups(Scraped(job="80", host="n4")),
    # Scrapes failed, a GPU vanished, the driver's and the node's counters began anew.
    dcgm(Scraped(job="81", host="n5", lost=range(100, 130), gone={1: 60}, reset_at=1000.0)),
    cgroups(Scraped(job="81", host="n5", reset_at=1000.0)),
    # Requeued: an hour on one node, later half of one on another.
    jobstats(Scraped(job="82", host="n6")),
    jobstats(Scraped(job="82", host="n7", start=LATER, seconds=1800)),
    # Two nodes of which one has no exporter.
    jobstats(Scraped(job="83", host="n8")),
    jobstats(Scraped(job="84", host="n9", every_s=60.0, late_s=31.0)),
    jobstats(Scraped(job="85", host="n10"), model="H200 \x1b]0;gotcha\x07"),
)


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Prometheus with the recorded series; its address."""
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        pytest.skip("prometheus is not installed (tests/setup_system.sh)")
    folder = tmp_path_factory.mktemp("prometheus")
    recorded = folder / "recorded.om"
    recorded.write_text(openmetrics(line for lines in RECORDED for line in lines))
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", recorded, folder / "data"]
    subprocess.run(make, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("")
    server = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=100y",
            "--web.listen-address=127.0.0.1:0",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        address, ready, words = None, False, []
        while not (address and ready):  # in any order
            line = server.stderr.readline()
            assert line, f"prometheus has ended: {words}"
            words.append(line)
            said = re.search(r'msg="Listening on" address=(\S+)', line)
            address = said[1] if said else address
            ready |= "Server is ready" in line
        yield f"http://{address}"
    finally:
        server.kill()
        server.communicate()


Site = Callable[..., None]


@pytest.fixture
def site(here: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Write the site `lab`, which is here; what it says of its Prometheus is given."""

    def write(url: str, *more: str) -> None:
        path = here.parent / "home/.config/hpckit/templates/sites/lab.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        # A busy machine may take long to answer.
        patience = () if any("timeout_s" in line for line in more) else ("timeout_s: 300",)
        rows = [f"  url: {url}", *(f"  {line}" for line in (*more, *patience))]
        path.write_text("description: a lab\nprometheus:\n" + "\n".join(rows) + "\n")
        monkeypatch.setenv("HPCKIT_SITE", "lab")

    return write


@pytest.fixture
def accounts(here: Path) -> Callable[..., Path]:
    """Let accounting know jobs: by id, the cells of their rows."""

    def keep(*rows: dict[str, str]) -> Path:
        return keep_accounts(here.parent / "bin", [row(**cells) for cells in rows])

    return keep
