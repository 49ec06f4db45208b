"""The code of a run from the command line: what changed since, as it was, and once more."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hpckit
from hpckit.api.prepare import prepare
from hpckit.errors import OutsideError, PlanError, RequestError
from hpckit.job_spec.recorded_spec import spec_from_record
from hpckit.payload.environment import IMPORTABLE
from hpckit.submission.code_plan import same_code
from hpckit.submission.kept_code import check_code
from tests.conftest import Answer, write_files
from tests.unit.checkouts import git

pytestmark = pytest.mark.long
TRAIN = "import part\nfrom pathlib import Path\nprint('says', part.TEXT, Path.cwd().name)\n"


@pytest.fixture
def run(here: Path) -> hpckit.Run:
    (here / "p" / "in").mkdir(parents=True)
    (here / "p" / "train.py").write_text(TRAIN)
    (here / "p" / "part.py").write_text("TEXT = 'old'\n")
    (here / "p" / "in" / "run.sh").write_text("true\n")
    (here / "p" / "in" / "run.sh").chmod(0o755)
    for number in range(8):  # one of them has the first hash of all
        (here / "p" / "in" / f"part{number}.py").write_text(f"TEXT = {number}\n")
    return hpckit.submit("serial", "p/train.py", executor="local", gpus=0, wait=True)


def test_the_code_of_a_run_is_shown_restored_and_run_again(
    run: hpckit.Run, here: Path, cli: Callable[..., Answer]
) -> None:
    assert run.logs() == f"says old {here.name}\n"
    said = cli("code", run.job_id)
    assert (said.status, said.out) == (0, "")
    assert "The project's files are as they were submitted." in said.err
    (here / "p" / "part.py").write_text("TEXT = '\x1b[2Jnew'\n")
    (here / "p" / "more.py").write_text("")
    shown = cli("code", run.job_id).out.splitlines()
    assert shown[3:5] == ["@@ -1 +1 @@", "-TEXT = 'old'"] or "-TEXT = 'old'" in shown
    assert "+TEXT = '\\x1b[2Jnew'" in shown  # a terminal obeys nothing of it
    assert run.code.difference().lines() == ["changed: part.py", "added: more.py"]
    assert "+++ now/part.py\n" in run.code.diff()
    again = cli("resubmit", run.job_id, "--dry-run").err
    same = "code: --same-code runs it as it was"
    assert f"  code changed: part.py\n  code added: more.py\n  {same}\n" in again
    assert "code" not in cli("resubmit", run.job_id, "--same-code", "--dry-run").err
    assert run.resubmit(same_code=True, wait=True).logs() == f"says old {here.name}\n"
    assert "new" in run.resubmit(wait=True).logs()
    out = run.code.restore("out")
    assert (out / "part.py").read_text() == "TEXT = 'old'\n"
    assert os.access(out / "in" / "run.sh", os.X_OK)
    (out / "part.py").write_text("mine to edit\n")
    refused = cli("code", run.job_id, "--restore", "out")
    assert (refused.status, "is not an empty folder" in refused.err) == (2, True)
    place = run.code.path / "part.py"
    place.chmod(0o644)
    place.write_text("TEXT = 'planted'\n")
    with pytest.raises(RequestError, match=r"part\.py is not what was kept"):
        run.resubmit(same_code=True)
    with pytest.raises(RequestError, match=r"part\.py is not what was kept"):
        check_code(
            prepare(
                spec_from_record(run._folder.record["request"]), None, code=same_code(run._folder)
            )
        )
    said = cli("code", run.job_id)
    assert "Somebody has changed files of this copy since" in said.err
    assert '"copy_changed": true' in cli("code", run.job_id, "--json").out


def test_a_run_of_uncommitted_changes_says_how_to_run_them_again(
    here: Path, cli: Callable[..., Answer]
) -> None:
    """And a line break in a file's name breaks no line of what is said."""
    git(here, "init", "-q", ".")
    write_files(here, {"train.py": "print(1)\n", "odd\nname.py": "", ".gitignore": "runs/\n"})
    git(here, "add", "-A")
    git(here, "commit", "-qm", "one")
    (here / "train.py").write_text("print(2)\n")
    run = hpckit.submit("serial", "train.py", executor="local", gpus=0, wait=True)
    git(here, "checkout", "-q", "train.py")
    (here / "odd\nname.py").write_text("new = 1\n")
    said = cli("resubmit", run.job_id, "--dry-run").err
    assert "had uncommitted changes: --same-code takes them along\n" in said
    assert "  code changed: odd\\nname.py, train.py\n" in said
    shown = cli("code", run.job_id).out.splitlines()
    assert shown[:2] == ["--- kept/odd\\nname.py", "+++ now/odd\\nname.py"]
    assert run.resubmit(same_code=True, wait=True).logs() == "2\n"


def test_of_a_folder_that_is_too_large_the_program_alone_is_compared(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpckit.code.files.MAX_PLAIN_FILES", 3)
    (here / "many" / "in").mkdir(parents=True)
    (here / "many" / "train.py").write_text("print('old')\n")
    for number in range(5):
        (here / "many" / "in" / f"{number}.dat").write_text("")
    run = hpckit.submit("serial", "many/train.py", executor="local", gpus=0, wait=True)
    assert run.code.files == 1
    assert not run.code.difference()
    (here / "many" / "train.py").write_text("print('new')\n")
    assert run.code.difference().lines() == ["changed: train.py"]


def test_without_a_copy_the_files_of_today_run(here: Path, cli: Callable[..., Answer]) -> None:
    (here / "train.py").write_text("import os\nprint('HPCKIT_CODE_DIR' in os.environ)\n")
    run = hpckit.submit("serial", "train.py", executor="local", gpus=0, no_code=True, wait=True)
    assert run.logs() == "False\n"
    assert run._folder.record["code"] == {"not_kept": "--no-code was given"}
    said = cli("code", run.job_id)
    assert (said.status, "has no copy of its code: --no-code was given" in said.err) == (2, True)
    assert not (here / "runs" / ".code").exists()
    (here / "hpckit.yaml").write_text("code: {keep: false}\n")
    later = hpckit.submit("serial", "train.py", executor="local", gpus=0)
    assert later._folder.record["code"]["not_kept"] == "hpckit.yaml says `code: {keep: false}`"


FAIL = """\
import os, sys
import pkg.part, pkg.made
print(pkg.part.__file__, pkg.made.TEXT)
try:
    pkg.part.fail()
except ZeroDivisionError as error:
    print(error.__traceback__.tb_next.tb_frame.f_code.co_filename)
    print(error.__traceback__.tb_next.tb_next.tb_frame.f_code.co_filename)
"""
PART = "def fail():\n    def inner():\n        1 / 0\n    inner()\n"


def test_bytecode_of_copies_is_kept_by_content_for_this_user_alone(
    here: Path, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    write_files(here, {"pkg/part.py": PART, "pkg/__init__.py": "", "pkg/made.py": "TEXT = 'old'\n"})
    write_files(here, {".gitignore": "made.py\nruns/\n", "go.py": FAIL})
    git(here, "init", "-q")
    kept = here / "runs" / ".code" / "bytecode"

    def go() -> tuple[list[str], list[int]]:
        run = hpckit.submit("serial", "go.py", executor="local", gpus=0, wait=True)
        # The runs, and so the copies, lie in the project.
        said = run.logs().split()
        assert "/.code/trees/" in said[0]
        assert said[1] == "old"
        assert said[2:] == [said[0], said[0]]
        return said, sorted(path.stat().st_mtime_ns for path in kept.iterdir())

    said, first = go()
    assert len(first) == 3
    assert not [*here.joinpath("runs", ".code", "trees").rglob("__pycache__")]
    assert go()[1] == first
    (here / "go.py").write_text(FAIL + "\n")  # another copy, the same modules
    again, second = go()
    assert again[0] != said[0]
    assert second == first
    for path in kept.iterdir():
        path.write_bytes(b"torn")
    go()
    kept.chmod(0o770)
    for path in kept.iterdir():
        path.unlink()
    assert go()[1] == []  # others could have written it
    kept.chmod(0o700)
    (kept / ("0" * 64 + ".of-a-source-that-is-gone")).touch()
    assert len(go()[1]) == 4
    hpckit.runs()[0].dir.joinpath("x").touch()
    cli("clean", "--state", "COMPLETED", "--yes")
    assert not kept.exists()


def test_a_project_may_have_modules_with_names_of_pythons_own(tmp_path: Path) -> None:
    """A script that needs none of Python's that import `types` runs beside a `types.py`."""
    kept, own = tmp_path / "trees" / "0" / "p", tmp_path / "p"
    own.mkdir()
    (tmp_path / "bytecode").mkdir(mode=0o700)
    text = "raise SystemExit('a module of the project')\n"
    write_files(kept, {f"{name}.py": text for name in ("contextlib", "functools", "warnings")})
    write_files(kept, {"types.py": "TEXT = 'mine'\n", "go.py": "import types; print(types.TEXT)"})
    done = subprocess.run(
        [sys.executable, str(kept / "go.py")],
        env={"PYTHONPATH": IMPORTABLE, "HPCKIT_CODE_MAP": f"{own}\t{kept}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n", "")
    assert [*(tmp_path / "bytecode").iterdir()]


STARTED = "#!/bin/sh\necho says old\n"


def spoilt(program: Path, how: str) -> None:
    """Let today's program be one that no submission takes, or that starts otherwise."""
    if how == "renamed":
        program.rename(program.with_name("tool2.sh"))
    elif how == "a folder":
        program.unlink()
        program.mkdir()
    elif how == "may not start":
        program.write_text("#!/bin/sh\r\necho says new\r\n")  # the line ends of Windows
    elif how == "another starter":
        program.chmod(0o644)
        program.write_text("#!/none/such -x\n")
    else:
        program.write_text(f"{STARTED}#SBATCH --nodes=2\nsrun true\n")


@pytest.mark.parametrize(
    "how", ["renamed", "a folder", "may not start", "another starter", "notes"]
)
def test_same_code_looks_at_the_copy_and_not_at_todays_files(
    here: Path, cli: Callable[..., Answer], how: str
) -> None:
    program = here / "tool.sh"
    program.write_text(STARTED)
    program.chmod(0o755)
    run = hpckit.submit("serial", "tool.sh", executor="local", gpus=0, wait=True)
    spoilt(program, how)
    shown = cli("resubmit", run.job_id, "--same-code", "--dry-run")
    assert (shown.status, "SBATCH" in shown.err) == (0, False), shown.err
    again = run.resubmit(same_code=True, wait=True)
    assert again.logs() == "says old\n"
    record = again._folder.record
    assert record["script_hash"] == run._folder.record["script_hash"]
    assert again.resubmit(same_code=True, wait=True).logs() == "says old\n"  # a copy of a copy


def test_same_code_of_an_array_and_of_a_module_that_are_gone(
    here: Path, cli: Callable[..., Answer]
) -> None:
    git(here, "init", "-q")
    (here / "pack").mkdir()
    (here / "pack" / "inner.py").write_text("print('says inner')\n")
    (here / "train.py").write_text("import sys\nprint('says', *sys.argv[1:])\n")
    git(here, "add", "-A")
    git(here, "-c", "user.name=n", "-c", "user.email=e@e", "commit", "-qm", "1")
    array = hpckit.submit(
        "serial", "train.py", executor="local", gpus=0, array={"x": [1, 2]}, wait=True
    )
    module = hpckit.submit("serial", module="pack.inner", executor="local", gpus=0, wait=True)
    (here / "train.py").unlink()
    (here / "pack" / "inner.py").unlink()
    git(here, "-c", "user.name=n", "-c", "user.email=e@e", "commit", "-qam", "2")
    assert array[1].resubmit(same_code=True, wait=True).logs() == "says --x 2\n"
    whole = cli("resubmit", array[0].job_id.partition("_")[0], "--same-code", "--wait", "--json")
    assert (whole.status, len(json.loads(whole.out)["jobs"])) == (0, 2), whole.err
    again = module.resubmit(same_code=True, wait=True)
    assert again.logs() == "says inner\n"
    assert again._folder.record["code"] == module._folder.record["code"]  # that commit, not today's


def test_same_code_says_how_a_folder_that_is_gone_comes_back(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = here / "below"
    below.mkdir()
    (below / "train.py").write_text("print('says old')\n")
    monkeypatch.chdir(below)
    run = hpckit.submit("serial", "train.py", executor="local", gpus=0, wait=True, runs=here / "r")
    monkeypatch.chdir(here)
    (below / "train.py").unlink()
    below.rmdir()
    with pytest.raises(OutsideError, match=f"Its code is kept.*mkdir -p {below}"):
        run.resubmit(same_code=True)
    below.mkdir()
    assert run.resubmit(same_code=True, wait=True).logs() == "says old\n"


def test_a_copy_that_cannot_run_or_is_gone_is_said_before_anything_is_submitted(
    here: Path,
) -> None:
    program = here / "tool.sh"
    program.write_text("#!/bin/sh\r\ntrue\r\n")
    skip = {"skip_check": ["program"], "executor": "local", "gpus": 0}
    run = hpckit.submit("serial", "tool.sh", wait=True, **skip)  # type: ignore[arg-type]
    program.write_text(STARTED)
    with pytest.raises(PlanError, match=r"line ends of Windows.*leave that out"):
        run.resubmit(same_code=True, unset=["skip-check"])
    run.code.path.chmod(0o755)
    (run.code.path / "tool.sh").unlink()
    with pytest.raises(RequestError, match=r"tool\.sh does not exist. To run the code as"):
        run.resubmit(same_code=True)
