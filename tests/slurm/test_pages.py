"""README and docs, typed verbatim by somebody new: an empty home, nothing of ours but a clone.

The shell works in a mount namespace of its own where this tree and the developer's home are
empty. The nodes of the box are other machines: they have the virtual environment with torch.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import needs
from tests.pages import PAGES, ROOT, Block, to_type
from tests.patience import LONG_S
from tests.slurmbox.fixture import Slurm

needs("torch")
# pip builds and unpacks, on a machine that others use too. What a page said last tells where it is.
LONGEST_S = 800
pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(LONGEST_S + 200)]
# Caches too: other tests, which run beside these, write them meanwhile.
SKIP = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "runs", "node_modules"
)
PACKAGES = Path(sysconfig.get_paths()["purelib"])
CACHE = Path.home() / ".cache" / "pip"
TYPED = [page for page in PAGES if any(not block.not_run for block in to_type(page))]
# $1: a folder for mounts; then folders to hide, `--`, folders to keep, `--`, a command.
HIDE = """\
stage=$1; shift; hide=(); keep=()
while [ "$1" != -- ]; do hide+=("$1"); shift; done; shift
while [ "$1" != -- ]; do keep+=("$1"); shift; done; shift
for at in "${!keep[@]}"; do
  mkdir -p "$stage/$at"; mount --bind "${keep[at]}" "$stage/$at"
done
for place in "${hide[@]}"; do mount -t tmpfs hidden "$place"; done
for at in "${!keep[@]}"; do
  mkdir -p "${keep[at]}"; mount --bind "$stage/$at" "${keep[at]}"
done
exec "$@"
"""


def git(*words: str | Path, cwd: Path) -> None:
    person = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(
        ["git", *person, *words], cwd=cwd, check=True, capture_output=True, timeout=LONG_S
    )


@dataclass(frozen=True)
class Newcomer:
    """Somebody at a login node for the first time."""

    place: Path
    slurm: Slurm

    @property
    def home(self) -> Path:
        return self.place / "home"

    @property
    def env(self) -> dict[str, str]:
        """A login shell's variables; git.example.org is a repository of this machine."""
        passed = ("PIP_", "SSL_", "REQUESTS_", "http", "HTTP", "no_proxy", "NO_PROXY")
        person = {"user.name": "Alice", "user.email": "alice@example.org"}
        here = {f"url.file://{self.place}/git/.insteadOf": "https://git.example.org/lab/"}
        settings = [*(person | here).items()]
        return {
            **{name: value for name, value in os.environ.items() if name.startswith(passed)},
            **{f"GIT_CONFIG_KEY_{at}": key for at, (key, _) in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{at}": value for at, (_, value) in enumerate(settings)},
            "GIT_CONFIG_COUNT": str(len(settings)),
            "SLURM_CONF": str(self.slurm.layout.conf),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PIP_CACHE_DIR": str(CACHE),
            "PROJECT": str(self.place / "project"),
        }

    def types(self, page: str, *, installed: bool) -> tuple[int, str]:
        """Type a page's blocks into one shell; return its exit status and all it said."""
        script = self.place / "page.sh"
        lines = [f"export PATH={self.home}/hpckit/bin:$PATH\n"] if installed else []
        lines += [f"cd\n# {block.page}:{block.line}\n" * (block is first_of(page)) + block.text
                  for block in to_type(page) if not block.not_run]  # fmt: skip
        script.write_text("".join(lines))
        folders = [sys.base_prefix, str(PACKAGES), str(CACHE)]
        hidden = [str(ROOT), str(Path.home())]
        keep = [
            folder
            for folder in folders
            if Path(folder).is_dir() and any(Path(folder).is_relative_to(place) for place in hidden)
        ]
        alone = ["unshare", "--mount", "--propagation=private", "bash", "-ceu", HIDE, "hide",
                 str(self.place / "mounts"), *hidden, "--", *keep, "--"]  # fmt: skip
        said = self.place / "said.txt"
        with said.open("wb") as stream:
            done = subprocess.run(
                ["timeout", "-k", "9", str(LONGEST_S), *(alone if may_mount() else []),
                 "bash", "-ev", str(script)],
                env=self.env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                check=False,
            )  # fmt: skip
        return done.returncode, said.read_text(errors="replace")


def first_of(page: str) -> Block:
    return next(block for block in to_type(page) if not block.not_run)


def may_mount() -> bool:
    """Say whether a namespace can be had here; in a closed container the shell is only clean."""
    tried = ["unshare", "--mount", "--propagation=private", "mount", "-t", "tmpfs", "x", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def newcomer(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """Give a home with nothing in it but an environment with torch, and a repository to clone."""
    place = tmp_path_factory.mktemp("newcomer")
    for name in ("home/venvs", "git", "mounts", "project"):
        (place / name).mkdir(parents=True)
    shutil.copytree(ROOT, place / "git" / "hpckit.git", ignore=SKIP)
    git("init", "-q", "-b", "main", cwd=place / "git" / "hpckit.git")
    git("add", ".", cwd=place / "git" / "hpckit.git")
    git("commit", "-qm", "all", cwd=place / "git" / "hpckit.git")
    torch = place / "home" / "venvs" / "torch"
    argv = [f"{sys.base_prefix}/bin/python3", "-m", "venv", "--without-pip", torch]
    subprocess.run(argv, check=True, timeout=LONG_S)
    [packages] = torch.glob("lib/python*/site-packages")
    (packages / "torch.pth").write_text(f"{PACKAGES}\n")
    yield Newcomer(place=place, slurm=slurm)
    queue = slurm.run("squeue", "-h", "-o", "%i %Z").stdout.splitlines()
    left = [row.split()[0] for row in queue if str(place) in row]
    if left:
        slurm.run("scancel", *left)


@pytest.mark.parametrize("page", sorted(TYPED, key="README.md".__ne__))
def test_a_page_can_be_typed_as_it_stands(
    newcomer: Newcomer, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        for block in to_type(page):
            if block.not_run:
                print(f"\n{block.page}:{block.line}: not run: {block.not_run}", end="")
    status, said = newcomer.types(page, installed=page != "README.md")
    assert status == 0, said
    for words in SAYS[page]:
        assert words in said, said


SAYS = {
    "README.md": (
        "hpckit 0.",
        "#SBATCH --nodes=2",
        "Slurm would accept this job",
        "rank 1 of 2: loss",
    ),
    "docs/collections.md": ("COMPLETED", "lab-hello", "+Ask Alice."),
    "docs/programs.md": ("COMPLETED", "rank 0 of 2 on c1", "rank 1 of 2 on c2"),
    "docs/new-cluster.md": ("box.yaml: ", "ok   sbatch answers"),
    "docs/first-result.md": (
        "rank 1: slope 1.7568",
        "ValueError: no such data: images.npz",
        '"step": 20, "loss": 1.4551915228366852e-11',
    ),
    "docs/first-job.md": (
        "box.yaml: ",
        "Slurm would accept this job",
        "rank 1 of 2 on c2, the others at c1",
        "CANCELLED",
    ),
}
