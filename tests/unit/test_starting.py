"""A program that does not start says which it is, on which host, and what to do."""

import errno
import os
import socket
from pathlib import Path

import pytest

from hpckit import shell
from hpckit.errors import CommandError
from hpckit.job_ends.failures import error_report
from hpckit.job_ends.tracebacks import last_words, status_words
from hpckit.payload.environment import located, why_not
from hpckit.run_folders.ranks import read_ranks
from hpckit.slurm.states import JobState
from tests.conftest import add_program
from tests.unit.made import make_run
from tests.unit.test_rank_ends import one_rank

ELF = Path("/bin/true").read_bytes()


def said(*argv: str | Path, path: str = "/usr/bin:/bin") -> str:
    environ = {"PATH": path}
    words = tuple(map(str, argv))
    with pytest.raises(CommandError) as caught:
        shell.spawn(words, env=environ)
    return why_not(words, environ, caught.value)


def test_each_reason_is_told_with_the_host(tmp_path: Path) -> None:
    here = f"on {socket.gethostname()}"
    files = {
        "gone": ("#!/opt/none/bin/perl -w\n", 0o755),
        "windows": ("#!/bin/bash\r\n", 0o755),
        "plain": ("echo 1\n", 0o755),
        "forbidden": ("#!/bin/sh\n", 0o644),
    }
    for name, (text, mode) in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    foreign = bytearray(ELF)
    foreign[18:20] = (183 if os.uname().machine != "aarch64" else 62).to_bytes(2, "little")
    (tmp_path / "foreign").write_bytes(foreign)
    (tmp_path / "foreign").chmod(0o755)
    for argv, words in (
        (("lmp",), f"Program 'lmp' was not found {here}. Load the module that provides it"),
        (("lmp",), "PATH is /usr/bin:/bin"),
        ((tmp_path / "none",), f"none' was not found {here}. Put it on a file system that all"),
        ((tmp_path / "gone",), f"gone' cannot be started {here}: it needs '/opt/none/bin/perl', "),
        ((tmp_path / "windows",), r"it needs '/bin/bash\r', which is not there"),
        ((tmp_path / "plain",), "its first line is not such as #!/bin/bash"),
        ((tmp_path / "forbidden",), "it lacks the permission (chmod +x)"),
        ((tmp_path,), "it lacks the permission"),
        ((tmp_path / "foreign",), f"this is {os.uname().machine}. Compile it there"),
    ):
        assert words in said(*argv)
        assert len(said(*argv).splitlines()) == 1


def test_another_fault_of_the_kernels_keeps_its_words() -> None:
    error = CommandError("'x' cannot be started: Too many links (x).", argv=("x",))
    error.__cause__ = OSError(errno.EMLINK, "Too many links")
    assert why_not(("x",), {}, error) == "'x' cannot be started: Too many links (x)"


def test_a_word_is_found_on_path_and_then_beside_the_environments_python(tmp_path: Path) -> None:
    for folder in ("first", "env"):
        (tmp_path / folder).mkdir()
        add_program(tmp_path / folder / "tool", "#!/bin/sh\n")
    python = str(tmp_path / "env" / "python")
    here = {"PATH": f"{tmp_path}/first"}
    assert located(("tool", "a"), here, python) == ("tool", "a")
    assert located(("tool", "a"), {"PATH": "/nowhere"}, python) == (f"{tmp_path}/env/tool", "a")
    assert located(("tool",), {"PATH": "/nowhere"}, "python") == ("tool",)
    assert located(("other",), {"PATH": "/nowhere"}, python) == ("other",)
    assert located(("./tool",), here, python) == ("./tool",)


def test_the_last_words_are_those_of_this_attempt(tmp_path: Path) -> None:
    err, out = tmp_path / "0.err", tmp_path / "0.out"
    err.write_text("of before\nof before\n" + "".join(f"line {n}\n" for n in range(30)))
    out.write_text("of before\nstep 1\n\nstep 2\n")
    words = last_words((err, 20), (out, 10))
    assert words is not None
    assert words.splitlines() == ["the end of its stderr:", *(f"line {n}" for n in range(20, 30))]
    assert last_words((err, 400), (out, 10)) == "the end of its stdout:\nstep 1\nstep 2"
    assert last_words((err, 400), (out, 400)) is None
    assert last_words((tmp_path / "no", 0), (tmp_path / "no", 0)) is None


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, ""), (3, ""), (None, ""), (126, "a program did not start"),
     (127, "a program did not start"), (128, ""), (139, "SIGSEGV"), (143, "SIGTERM"), (255, "")],
)  # fmt: skip
def test_exit_statuses_in_words(status: int | None, words: str) -> None:
    assert status_words(status) == words


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "report"),
    [
        ("echo one >&2; echo two >&2; kill -SEGV $$",
         ["exit status 139 (SIGSEGV), ",
          "rank 0 on {host}: killed by SIGSEGV; the last it wrote: two",
          "the end of its stderr:\none\ntwo"]),
        ("echo one; exit 3",
         ["exit status 3, ", "the rank printed no error; see ", "the end of its stdout:\none"]),
        ("nosuch", ["exit status 127 (a program did not start), ", "nosuch: "]),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_named_with_its_last_lines(
    tmp_path: Path, script: str, report: list[str]
) -> None:
    run = make_run(tmp_path, "r-1")
    process = one_rank(run.dir, "sh", "-c", script)
    process.run()
    told = error_report(run, read_ranks(run.dir), JobState.FAILED)
    for words in report:
        assert words.format(host=socket.gethostname()) in told
