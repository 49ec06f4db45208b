"""What a file or a word is as a program, and what is refused before a job is made of it."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.environments import BARE, Environment, EnvironmentKind
from hpckit.errors import RequestError
from hpckit.job.program import Program, ProgramKind, find_module, find_program
from hpckit.job_spec.recorded_spec import spec_from_record
from hpckit.job_spec.spec import JobSpec
from tests.conftest import Answer, add_program, write_files
from tests.patience import LONG_S

PIPS = "#!/bin/sh\n'''exec' \"/a/long/path/python\" \"$0\" \"$@\"\n' '''\nimport sys\n"
ELF = b"\x7fELF\x02\x01\x01\0"


def made(folder: Path, name: str, start: str | bytes, mode: int) -> Program:
    path = folder / name
    path.write_bytes(start.encode() if isinstance(start, str) else start)
    path.chmod(mode)
    return find_program(str(path), BARE)


@pytest.mark.parametrize("mode", [0o644, 0o755])
@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("train.py", "import torch\n"),
        ("train.py", "#!/bin/bash\nprint(1)\n"),  # Python does not mind
        ("train.py", "this is not Python: Python itself says so, with the line"),
        ("train", "import torch\n"),
        ("train", "#!/usr/bin/env python3\n#SBATCH --nodes=2\n"),
        ("train.sh", "#!/venv/bin/python\nprint(1)\n"),
        ("train", "#!/usr/bin/env -S uv run --script\nprint(1)\n"),
        ("torchrun", PIPS),
        ("train", ""),
        ("bundle", b"PK\x03\x04\0\0"),
    ],
)
def test_what_may_be_python_runs_under_the_environments(
    tmp_path: Path, name: str, start: str | bytes, mode: int
) -> None:
    found = made(tmp_path, name, start, mode)
    path = str(tmp_path / name)
    assert (found.kind, found.word, found.fault) == (ProgramKind.PYTHON, path, None)
    assert found.command(BARE, "/py") == ("/py", path)
    assert found.is_python(())


@pytest.mark.parametrize(
    ("name", "start", "mode", "starter"),
    [
        ("job", "#!/bin/bash -l\npython a.py\n", 0o755, []),
        ("run", "#!/usr/bin/env Rscript\n1\n", 0o755, []),
        ("a.out", ELF, 0o755, []),
        ("windows.exe", b"MZ\0\0", 0o755, []),  # binfmt_misc may know what to do
        ("job.sh", "#!/bin/bash\n", 0o755, []),
        ("job.sh", "#!/bin/zsh -f -e\n", 0o644, ["/bin/zsh", "-f -e"]),
        ("job.sh", "echo 1\n", 0o755, ["bash"]),  # the kernel starts no such file
        ("job.SH", "module load python\n", 0o644, ["bash"]),
        ("job.slurm", "#!/bin/bash\n", 0o644, ["/bin/bash"]),
        ("fit.R", "print(1)\n", 0o644, ["Rscript"]),
        ("fit.jl", "println(1)\n", 0o644, ["julia"]),
        ("count.pl", "print 1;\n", 0o644, ["perl"]),
    ],
)
def test_other_programs_are_started_as_such(
    tmp_path: Path, name: str, start: str | bytes, mode: int, starter: list[str]
) -> None:
    found = made(tmp_path, name, start, mode)
    path = str(tmp_path / name)
    assert (found.kind, found.fault) == (ProgramKind.FILE, None)
    assert found.command(BARE, "/py") == (*starter, path)
    assert not found.is_python(())
    box = Environment(name="b", kind=EnvironmentKind.APPTAINER, path="/i.sif", binds=("/proj",))
    in_box = ("apptainer", "exec", "--nv", "--bind", "/proj", "/i.sif", *starter, path)
    assert found.command(box, "/py") == in_box


def test_what_pip_installed_beside_its_python_is_started_by_that_python(tmp_path: Path) -> None:
    line = f"#!{tmp_path}/python3.11\nimport accelerate\n"
    assert made(tmp_path, "accelerate", line, 0o755).kind is ProgramKind.FILE
    assert made(tmp_path, "accelerate", line, 0o644).kind is ProgramKind.PYTHON
    long = PIPS.replace("/a/long/path", str(tmp_path))
    assert made(tmp_path, "torchrun", long, 0o755).kind is ProgramKind.FILE


@pytest.mark.parametrize(
    ("name", "start", "mode", "says"),
    [
        ("solver", ELF, 0o644, "is a compiled program that may not be started: it lacks the perm"),
        ("run", "#!/usr/bin/env Rscript\n1\n", 0o644, "chmod +x"),
        ("job", "#!/bin/bash\r\necho\r\n", 0o755, "line ends of Windows"),
        ("job.sh", "echo 1\r\n", 0o644, r"sed -i 's/\r$//' "),
        ("job", "echo hello\n", 0o755, "no first line such as #!/bin/bash"),
        ("notes", "remember the milk\n", 0o644, "is not Python (line 1)"),
        ("fit.ipynb", b'{"cells": []}', 0o644, "nbconvert"),
        ("solve.f90", "end program\n", 0o644, "compile it"),
        ("bytes", b"\1\0\1", 0o644, "chmod +x"),
    ],
)
def test_what_cannot_be_started_is_refused_and_why(
    tmp_path: Path, name: str, start: str | bytes, mode: int, says: str
) -> None:
    found = made(tmp_path, name, start, mode).fault
    assert found is not None
    assert f"{name}' " in found
    assert says in found
    assert len(found) < 300 + 2 * len(str(tmp_path))


def test_a_program_that_only_its_owner_reads_can_be_started(tmp_path: Path) -> None:
    found = made(tmp_path, "solver", ELF, 0o111)
    assert (found.kind, found.fault) == (ProgramKind.FILE, None)


@pytest.mark.parametrize("name", ["a b", "-x", "it's $(id)", "a\nb", "ä"])
def test_a_path_of_any_letters_stays_one_word(tmp_path: Path, name: str) -> None:
    assert made(tmp_path, name, ELF, 0o755).command(BARE, "/py") == (str(tmp_path / name),)


def test_a_bare_word_is_a_program_of_the_node(here: Path) -> None:
    add_program(here.parent / "bin" / "lmp", "#!/bin/sh\n")
    known = find_program("lmp", BARE)
    assert (known.kind, known.word, known.fault, known.notes) == ("word", "lmp", None, ())
    assert known.command(BARE, "/py") == ("lmp",)
    elsewhere = find_program("gmx", BARE)
    assert elsewhere.fault is None
    assert "'gmx' is not a program on this machine: it is looked for on the" in elsewhere.notes[0]
    venv = here / "venv"
    (venv / "bin").mkdir(parents=True)
    add_program(venv / "bin" / "accelerate", "#!/bin/sh\n")
    inside = Environment(name="v", kind=EnvironmentKind.VENV, path=str(venv))
    assert find_program("accelerate", inside).notes == ()


def test_a_file_misspelt_is_refused_unless_it_is_a_program(here: Path) -> None:
    (here / "train.py").write_text("")
    (here / "lmp.sh").write_text("")
    for word in ("trian.py", "train", "tarin.py"):
        assert "Did you mean 'train.py'?" in (find_program(word, BARE).fault or "")
    assert "nowhere.sh' does not exist" in (find_program("nowhere.sh", BARE).fault or "")
    with pytest.raises(RequestError, match="'/dev/null' is not a file"):
        find_program("/dev/null", BARE)
    assert "Did you mean 'train.py'?" in (find_program("./trian.py", BARE).fault or "")
    add_program(here.parent / "bin" / "train", "#!/bin/sh\n")
    assert find_program("train", BARE).fault is None
    assert find_program("lmp", BARE).fault is None


def test_python_as_a_word_is_the_environments() -> None:
    box = Environment(name="b", kind=EnvironmentKind.APPTAINER, path="/i.sif")
    assert find_program("python", box).command(box, "/py")[-1] == "python"
    found = find_program("python3", BARE)
    assert found.command(BARE, "/py") == ("/py",)
    assert found.is_python(("train.py",))
    assert found.is_python(("-m", "pkg"))
    assert not found.is_python(("-c", "1"))
    assert not found.is_python(())


def test_a_module_is_named_as_python_names_it(here: Path) -> None:
    (here / "pkg").mkdir()
    (here / "pkg" / "train.py").write_text("")
    found = find_module("pkg.train")
    assert found.command(BARE, "/py") == ("/py", "-m", "pkg.train")
    assert (found.name, found.file) == ("pkg.train", here / "pkg" / "train.py")
    assert found.is_python(())
    assert found.top == here
    assert find_module("torch.distributed.run").file is None
    for wrong in ("pkg/train.py", "", "a b", "-c", ".pkg", "a\nb"):
        with pytest.raises(RequestError, match="is not the name of a Python module"):
            find_module(wrong)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("train.py", "-m 'train.py' is the name of a file: .* Write -m train, or train.py without"),
        ("pkg.fit.py", "Write -m pkg.fit, or pkg/fit.py without -m"),
        ("tool.py", None),  # a package's own program
        ("gone.py", None),
        ("other.py", None),  # a module that is called so
    ],
)
def test_a_file_is_not_taken_for_a_module(here: Path, name: str, says: str | None) -> None:
    """Python imports `train` to look for `train.py` in it: all of the training runs, and fails."""
    write_files(
        here, {"train.py": "", "pkg/fit.py": "", "tool/__main__.py": "", "other/py.py": "1"}
    )
    found = find_module(name)
    assert found.fault is None if says is None else re.search(says, found.fault or "")


def test_a_module_is_found_as_python_finds_it_here_and_then_by_its_path(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("src/pkg/train.py", "other/pkg/train.py", "other/pkg/tool/__main__.py"):
        (here / place).parent.mkdir(parents=True)
        (here / place).write_text("")
    monkeypatch.setenv("PYTHONPATH", f"src::{here / 'other'}")
    found = [find_module(name) for name in ("pkg.train", "pkg.tool")]
    assert [(row.file, row.top) for row in found] == [
        (here / "src/pkg/train.py", here / "src"),
        (here / "other/pkg/tool/__main__.py", here / "other"),
    ]
    (here / "pkg").mkdir()
    (here / "pkg" / "train.py").write_text("")
    assert find_module("pkg.train").top == here


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("serial", "echo hello world"), "hpckit submit serial echo -- hello world"),
        (("serial", "train.py", "-m", "pkg"), "Both a program, "),
        (("ddp", "-m", "pkg/train.py"), "is not the name of a Python module"),
        (("fsdp", "-m", "pkg.train"), "hpckit submit ddp -m pkg.train"),
        (("serial", "."), "is a folder"),
        (("serial", "accelerate", "launch"), "program's own arguments go last, after `--`"),
        (("serial", "train.py", "--array", f"x={'1,' * 999}1", "--hold"), ",1... --dry-run -- --h"),
    ],
)
def test_what_is_typed_wrongly_is_told(
    cli: Callable[..., Answer], here: Path, argv: tuple[str, ...], says: str
) -> None:
    (here / "train.py").write_text("")
    said = cli("submit", *argv, "--dry-run")
    assert said.status == 2
    assert says in said.err


def test_the_check_has_its_switch_also_under_its_old_name(
    cli: Callable[..., Answer], here: Path
) -> None:
    (here / "job").write_text("#!/bin/bash\n")
    refused = cli("submit", "serial", "job", "--dry-run")
    assert refused.status == 2
    assert "chmod +x" in refused.err
    assert "--skip-check program" in refused.err
    for name in ("program", "script"):
        assert cli("submit", "serial", "job", "--dry-run", "--skip-check", name).status == 0


def test_a_batch_script_is_told_that_its_options_are_not_read(
    cli: Callable[..., Answer], here: Path
) -> None:
    (here / "batch.sh").write_text("#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n")
    said = cli("submit", "serial", "batch.sh", "--dry-run")
    assert said.status == 0
    assert "#SBATCH lines of batch.sh are not read: give their options to hpckit" in said.err
    assert "batch.sh starts srun, which would wait" in said.err
    assert f"#   /bin/bash {here}/batch.sh\n" in said.out
    (here / "batch.py").write_text("#!/usr/bin/env python3\n\n# A job.\n#SBATCH --nodes=2\n1\n")
    assert "lines of batch.py are" in cli("submit", "serial", "batch.py", "--dry-run").err
    (here / "batch.py").write_text('"""Submits."""\nJOB = """\n#SBATCH --nodes=2\n"""\n')
    assert "#SBATCH" not in cli("submit", "serial", "batch.py", "--dry-run").err
    (here / "batch.sh").write_text("#!/bin/bash\nsrun --mem=0 --overlap python train.py # srun\n")
    assert "starts srun" not in cli("submit", "serial", "batch.sh", "--dry-run").err


def test_one_process_on_each_node_is_asked_for(cli: Callable[..., Answer], here: Path) -> None:
    add_program(here.parent / "bin" / "accelerate", "#!/bin/sh\n")
    line = ("submit", "serial", "accelerate", "--nodes", "2", "--gpus", "4", "--dry-run")
    refused = cli(*line)
    assert refused.status == 2
    assert "--tasks-per-node 1" in refused.err
    said = cli(*line, "--tasks-per-node", "1", "--", "launch", "train.py")
    assert said.status == 0
    assert "#SBATCH --ntasks-per-node=1\n" in said.out
    assert "--ntasks=2 " in said.out
    assert "#   accelerate launch train.py\n" in said.out


def test_a_request_of_an_older_version_is_read() -> None:
    old = {"target": "ddp", "script": "/x/train.py", "nodes": 2}
    assert spec_from_record(old) == JobSpec(target="ddp", program="/x/train.py", nodes=2)
    assert spec_from_record({"target": "ddp", "script": None}).of_workload
    assert old["script"] == "/x/train.py"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount")
def test_a_file_system_that_allows_no_programs_is_named(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "from hpckit.job.program import find_program; from hpckit.environments import BARE; "
        f"print(find_program('{tmp_path}/a.out', BARE).fault)"
    )
    script = (
        f"mount -t tmpfs -o noexec none {tmp_path} && printf '\\177ELF' > {tmp_path}/a.out && "
        f'chmod 755 {tmp_path}/a.out && {sys.executable} -c "{code}"'
    )
    argv = ["unshare", "--mount", "--propagation=private", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LONG_S)
    if done.returncode and "permitted" in done.stderr:
        pytest.skip("no mount namespace can be had here")
    assert "its file system allows no programs (noexec)" in done.stdout, done.stderr


def test_a_folder_of_a_programs_name_does_not_stand_in_its_way(here: Path) -> None:
    (here / "bash").mkdir()
    (here / "lmp").mkdir()
    found = find_program("bash", BARE)
    assert (found.kind, found.word, found.fault) == (ProgramKind.WORD, "bash", None)
    assert "is a folder" in (find_program("lmp", BARE).fault or "")
