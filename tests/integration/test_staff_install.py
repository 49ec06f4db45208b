"""docs/install-for-all.md: its lines, typed with another folder, and users who load its module.

pip fetches nothing here, as the README's lines do that: the packages are those of the tests.
"""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from hpckit.version import __version__
from tests.pages import ROOT, to_type
from tests.unit.test_wheel import build

LMOD = Path("/usr/share/lmod/lmod/init/bash")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not LMOD.exists(), reason="NOT RUN: needs Lmod (tests/setup_system.sh)"),
]
INSTALL, USE = (block.text for block in to_type("docs/install-for-all.md")[:2])


def typed(script: str, cwd: Path) -> str:
    """Type lines into a clean bash; return all that it said."""
    done = subprocess.run(
        ["bash", "-ec", script],
        env={"HOME": str(cwd), "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Type the lines that install; of pip's lines, the second unpacks a wheel of this tree."""
    place = tmp_path_factory.mktemp("apps")
    (place / "hpckit-source").symlink_to(ROOT)
    wheel = build(ROOT, "wheel", place / "wheel")
    packages = sysconfig.get_paths()["purelib"]
    lines = INSTALL.replace("/apps/hpckit", str(place / "hpckit"))
    lines, found = re.subn(
        r"^\S+/pip install --require-hashes .*$",
        f"echo {packages} > $(echo $APPS/$VERSION/venv/lib/python3*/site-packages)/others.pth",
        lines,
        flags=re.MULTILINE,
    )
    assert found == 1
    assert "pip install --no-deps ./hpckit-source\n" in lines
    lines = lines.replace("./hpckit-source\n", f"--no-index {wheel}\n")
    typed(lines, place)
    return place / "hpckit"


def module(apps: Path, lines: str, cwd: Path) -> str:
    return typed(f". {LMOD}\nmodule use {apps}/modulefiles\n{lines}", cwd)


def test_the_version_is_that_of_the_page() -> None:
    assert f"VERSION={__version__}\n" in INSTALL


def test_users_load_the_module(apps: Path, tmp_path: Path) -> None:
    said = module(apps, f"{USE}command -v hpckit python3; complete -p hpckit", tmp_path)
    assert f"hpckit {__version__}\n" in said
    assert f"{apps}/{__version__}/share/man/man1/hpckit.1\n" in said
    assert f"{apps}/{__version__}/bin/hpckit\n" in said
    assert "complete -F _hpckit hpckit\n" in said
    assert f"{apps}/{__version__}/bin/python3" not in said  # the user's own stays first
    gone = "module unload hpckit; ! command -v hpckit; ! complete -p hpckit; ! declare -F _hpckit"
    module(apps, f"module load hpckit; {gone}", tmp_path)


@pytest.mark.parametrize("before", ["", "/opt/other/man", "/opt/other/man:", ":/opt/other/man"])
def test_the_man_page_is_found_beside_those_of_other_modules(
    apps: Path, tmp_path: Path, before: str
) -> None:
    """With a MANPATH, man does not look beside PATH; without one it does, and an own hides all."""
    shown = 'man -w hpckit; man -w hpckit ls || true; module unload hpckit; echo "[$MANPATH]"'
    lines = f"export MANPATH={before}\nmodule load hpckit\n{shown}"
    said = module(apps, lines, tmp_path).splitlines()
    assert said[0] == f"{apps}/{__version__}/share/man/man1/hpckit.1"
    assert any(line.startswith("/usr/share/man/") for line in said) == (before != "/opt/other/man")
    assert said[-1].rstrip(":]") == f"[{before}]".rstrip(":]")


def test_a_job_runs_from_the_module(apps: Path, tmp_path: Path) -> None:
    (tmp_path / "hello.sh").write_text('echo "hello of rank $RANK"\n')
    line = "hpckit submit serial hello.sh --executor local --gpus 0 --wait --sample-interval 0"
    said = module(apps, f"module load hpckit\n{line}\nhpckit logs latest", tmp_path)
    assert "hello of rank 0" in said


def test_the_groups_site_is_found_and_nothing_can_be_written(apps: Path, tmp_path: Path) -> None:
    site = apps / "collection" / "templates" / "sites" / "ourcluster.yaml"
    site.parents[2].mkdir()  # it becomes a collection with its first part
    assert module(apps, "module load hpckit\nhpckit jobs", tmp_path).startswith("No runs yet")
    site.parent.mkdir(parents=True)
    site.write_text("description: Our cluster\n")
    assert "Our cluster" in module(apps, "module load hpckit\nhpckit sites list", tmp_path)
    folder = apps / __version__
    loose = [
        path
        for path in folder.rglob("*")
        if os.lstat(path).st_mode & 0o022 and not path.is_symlink()
    ]
    assert loose == []
