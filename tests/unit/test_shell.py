import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hpckit import shell
from hpckit.errors import CommandError
from tests.patience import LONG_S


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_program_is_heard_on_both_streams() -> None:
    done = shell.run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 0)


def test_arguments_are_not_read_by_a_shell() -> None:
    assert shell.run(["echo", "$HOME; rm *"]).stdout == "$HOME; rm *\n"


def test_input_is_given_and_otherwise_empty() -> None:
    assert shell.run(["cat"], input="häl\n").stdout == "häl\n"
    assert shell.run(["cat"]).stdout == ""


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert shell.run(["printf", r"a\377b"]).stdout == "a\ufffdb"


def test_programs_speak_the_c_locale_also_in_a_given_environment() -> None:
    env = {"PATH": os.environ["PATH"], "LC_ALL": "de_DE.UTF-8"}
    assert shell.run(["sh", "-c", "echo $LC_ALL"], env=env).stdout == "C\n"


def test_a_missing_program_is_named() -> None:
    with pytest.raises(CommandError, match=r"'no-such-program' was not found on PATH\. Install"):
        shell.run(["no-such-program"])


def test_a_closed_folder_of_path_makes_no_program_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel says of both that permission is denied; root enters every folder.
    (tmp_path / "no-such-program").mkdir()
    (tmp_path / "data").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(CommandError, match="'no-such-program' was not found on PATH"):
        shell.run(["no-such-program"])
    with pytest.raises(CommandError, match="'data' cannot be started: Permission denied"):
        shell.run(["data"])


def test_a_file_that_is_no_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(CommandError, match="cannot be started: Permission denied"):
        shell.run([str(tmp_path / "data")])


def test_a_failure_says_the_line_that_says_why() -> None:
    script = "echo banner >&2; echo 'x: error: disk full' >&2; exit 4"
    with pytest.raises(CommandError, match="'sh' exited with status 4: x: error: disk full") as it:
        shell.run(["sh", "-c", script])
    assert it.value.returncode == 4
    assert it.value.stderr.startswith("banner")


def test_a_failure_without_words_is_still_a_sentence() -> None:
    with pytest.raises(CommandError, match="'false' exited with status 1: it gave no reason"):
        shell.run(["false"])


def test_a_program_ended_by_a_signal_is_told_apart() -> None:
    with pytest.raises(CommandError, match="was ended by signal 9"):
        shell.run(["sh", "-c", "kill -9 $$"])


def test_a_failure_may_be_left_to_the_caller() -> None:
    assert shell.run(["false"], check=False).returncode == 1


def test_a_program_that_hangs_is_stopped() -> None:
    for limit_s in (0.5, 20.0):  # on a loaded machine it may not have begun in the first
        with pytest.raises(CommandError, match=f"no answer within {limit_s:g} s") as it:
            shell.run(["sh", "-c", "echo waiting >&2; exec sleep 1000"], timeout_s=limit_s)
        if it.value.stderr:
            break
    assert it.value.returncode is None
    assert it.value.stderr == "waiting\n"


def test_a_child_runs_beside_us_where_it_was_told(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        child = shell.spawn(["pwd"], env=os.environ, cwd=tmp_path, stdout=out)
        assert child.wait(timeout=LONG_S) == 0
    assert (tmp_path / "out").read_text().strip() == str(tmp_path.resolve())


def test_a_child_may_have_a_session_of_its_own() -> None:
    code = "import os; print(os.getsid(0) == os.getpid())"
    child = shell.spawn(python(code), new_session=True, stdout=subprocess.PIPE)
    assert child.communicate(timeout=LONG_S)[0] == b"True\n"


def test_a_child_that_cannot_start_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not found on PATH"):
        shell.spawn(["no-such-program"])
    with pytest.raises(CommandError, match="No such file or directory"):
        shell.spawn(["true"], cwd=tmp_path / "absent")


def test_which_finds_programs() -> None:
    assert shell.which("sh") is not None
    assert shell.which("no-such-program") is None


def test_what_a_thread_waits_for_can_be_ended(tmp_path: Path) -> None:
    script = f"echo $$ >{tmp_path}/pid; sleep 300 & wait"
    failed: list[CommandError] = []

    def ask() -> None:
        try:
            shell.run(["sh", "-c", script], own_group=True, timeout_s=300)
        except CommandError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.01)
    until = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < until:
        shell.stop_all()  # the program may be there before `run` knows its number
        thread.join(0.1)
    assert not thread.is_alive()
    assert "was ended by signal 9" in str(failed[0])
    shell.stop_all()  # none is left
