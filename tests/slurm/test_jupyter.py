"""`hpckit jupyter` and `hpckit ssh-config` on a real Slurm: real Jupyter, real ssh and sshd."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.clients.conftest import client_venv
from tests.patience import LONG_S
from tests.slurm import sshd as own_sshd
from tests.slurm.conftest import HPCKIT, SCRIPTS, Desk, eventually, lacking
from tests.slurm.sshd import Sshd, mine
from tests.slurm.users import people
from tests.slurmbox.fixture import Slurm

__all__ = ["client_venv"]

if reason := own_sshd.obstacle():
    pytest.skip(reason, allow_module_level=True)
pytestmark = pytest.mark.slurm


def login_node(one: Desk) -> AbstractContextManager[Sshd]:
    """Give an sshd that plays the login node `login` and the nodes, for one user."""
    folder = one.home.parent / f"sshd-{one.home.name}"
    folder.mkdir()
    names = ("XDG_STATE_HOME", "HPCKIT_RUNS", "SLURM_CONF", "PYTHONPATH", "HOME")
    variables = {name: one.env[name] for name in names if name in one.env}
    return own_sshd.running(folder, one.slurm.layout.hosts, variables)


@pytest.fixture
def sshd(desk: Desk) -> Iterator[Sshd]:
    """Give one for the desk's user."""
    with login_node(desk) as one:
        yield one


def cell(venv: Path, url: str, code: str) -> str:
    """Run a cell as a browser would, and give what it printed."""
    argv = [venv / "bin" / "python", SCRIPTS / "run_cell.py", url, code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LONG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def beside(
    desk: Desk, sshd: Sshd, argv: list[str | Path], wait_for: str, **more: str
) -> Iterator[Callable[[], str]]:
    """Run a program beside the test, once it has said a text; give what it has said."""
    said = sshd.folder / f"said-{len(list(sshd.folder.glob('said-*')))}"
    env = {**desk.env, "PATH": f"{sshd.bin}:{desk.env['PATH']}", **more}
    with said.open("w") as out:
        child = subprocess.Popen(
            argv, env=env, cwd=desk.work, stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
    try:
        eventually(lambda: wait_for in said.read_text() or child.poll() is not None)
        assert wait_for in said.read_text()
        yield said.read_text
    finally:
        child.terminate()
        child.wait(LONG_S)


def everything_written(run_dir: Path) -> dict[str, bytes]:
    """Give the content of every file of a run."""
    return {str(p.relative_to(run_dir)): p.read_bytes() for p in run_dir.rglob("*") if p.is_file()}


def test_a_notebook_runs_cells_through_ssh_and_through_slurm(
    desk: Desk, sshd: Sshd, client_venv: Path
) -> None:
    path = {"PATH": f"{sshd.bin}:{desk.env['PATH']}"}
    (desk.home / ".jupyter").mkdir()
    careless = "c.ServerApp.token = c.IdentityProvider.token = ''\nc.ServerApp.ip = '0.0.0.0'\n"
    (desk.home / ".jupyter" / "jupyter_server_config.py").write_text(careless)
    ask = ("jupyter", "--env", client_venv, "--time", "10m", "--login", "root@login", "--json")
    found = desk.call(*ask, env=path).json
    job_id, url, run_dir = found["job_id"], found["url"], Path(found["run_dir"])
    desk.submitted.append(job_id)
    token = url.partition("?token=")[2]
    assert len(token) > 40

    # The user's own configuration would have opened it to everybody, everywhere.
    rows = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    listening = [row.split()[1] for row in rows.splitlines() if row.split()[3] == "0A"]
    port = f":{found['port']:04X}"
    assert {word for word in listening if word.endswith(port)} == {f"0100007F{port}"}

    # The line as it is printed, but for the port here: test and node share a loopback.
    line = found["tunnel"]
    assert line[:2] == ["ssh", "-N"]
    assert line[4:] == ["-J", "root@login", "root@c1"]
    free = own_sshd.free_port()
    local = f"{free}:127.0.0.1:{found['port']}"
    with beside(
        desk, sshd, ["ssh", "-v", *line[1:3], local, *line[4:]], "Local forwarding listening"
    ):
        here = url.replace(str(found["port"]), str(free))
        seen = (
            "import os, socket; kept = 41; print(socket.gethostname(), os.environ['SLURM_JOB_ID'])"
        )
        assert cell(client_venv, here, seen).split() == ["c1", job_id]
        wrong = here.replace(token, "x" * len(token))
        with pytest.raises(AssertionError, match="403"):
            cell(client_venv, wrong, "1")

    # The connection is gone, the kernel and its variables are not. A browser is given no token.
    browser = lacking(desk, sshd.folder / "browsers", seen='echo "$@" >"$HOME/seen"')["PATH"]
    again = [HPCKIT, "jupyter", job_id, "--open"]
    seen_by = f"{browser.partition(':')[0]}/seen %s"
    with beside(desk, sshd, again, "through ssh", BROWSER=seen_by) as said:
        address = re.search(r"http://\S+", said())
        assert address
        assert cell(client_venv, address[0], "kept += 1; print(kept)") == "42\n"
        assert eventually(lambda: (desk.home / "seen").exists())
        page = (desk.home / "seen").read_text()
        assert page.strip() == (run_dir / "session" / "open.html").as_uri()
    with beside(desk, sshd, [*again, "--via", "srun"], "through srun") as said:
        address = re.search(r"http://\S+", said())
        assert address
        assert cell(client_venv, address[0], "print('x' * 300_000, kept)")[-4:] == " 42\n"
        assert not mine(token)  # of hpckit's own, too: the test's arguments are over
        assert mine("hpckit.session.pipe")
    assert eventually(lambda: not mine("hpckit.session.pipe"))

    # The token is where only its owner reads it, and nowhere else.
    private = run_dir / "session" / "connection.json"
    assert [row.stat().st_mode & 0o777 for row in (private, private.parent)] == [0o600, 0o700]
    files = everything_written(run_dir)
    names = {name for name, content in files.items() if token.encode() in content}
    assert names == {"session/connection.json", "session/open.html"}
    assert (run_dir / "session" / "open.html").stat().st_mode & 0o777 == 0o600
    assert token not in desk.slurm.run("scontrol", "show", "job", job_id).stdout
    assert token not in desk.call("status", job_id).out + desk.call("logs", job_id, "--all").out

    # The job's end is the tunnel's.
    with beside(desk, sshd, [*again, "--via", "srun"], "through srun") as said:
        desk.call("cancel", job_id)
        desk.until(job_id, "CANCELLED")
        assert eventually(lambda: f"Job {job_id} is over: CANCELLED." in said())
    # hpckit hears of the job's end while srun and the server are still at theirs.
    assert eventually(lambda: not mine("hpckit.session.pipe"))
    assert eventually(lambda: not private.exists())
    assert eventually(lambda: not mine(f"root_dir={desk.work}"))
    late = desk.call("jupyter", job_id, expect=1)
    assert f"Notebook {job_id} is over" in late.err


def test_an_environment_without_jupyter_says_what_to_do(desk: Desk) -> None:
    python = str(Path(sys.executable).resolve())
    ask = ("jupyter", "--env", python, "--time", "5m", "--sample-interval", "0")
    path = {"PATH": "/usr/bin:/bin:/usr/sbin"}
    said = desk.call(*ask, expect=2, env=path).err
    assert "has no Jupyter" in said
    assert "pip install jupyterlab" in said
    said = desk.call(*ask, "--skip-check", "program", expect=1, env=path).err
    assert "is over (FAILED)" in said
    assert "pip install jupyterlab" in said


def test_ssh_reaches_a_job_by_the_node_or_by_an_sshd_of_its_own(slurm: Slurm) -> None:
    with people(slurm, "hpckit-dora") as (dora,), login_node(dora) as sshd:
        # What `useradd` makes is locked; a user who logs in by a key is not.
        subprocess.run(["usermod", "--password", "*", dora.name], check=True)
        waits = dora.work / "waits.sh"
        waits.write_text("until [ -e enough ]; do sleep 0.2; done\n")
        login = ("--login", f"{dora.name}@login")
        job_id = dora.submit("serial", waits, "--time", "5m", "--name", "waits")["job_id"]
        dora.until(job_id, "RUNNING")

        env = {**dora.env, "PATH": f"{sshd.bin}:{dora.env['PATH']}"}

        def ssh(*words: str, said: str = "", program: str = "ssh") -> str:
            done = subprocess.run(
                [program, *words],
                env=env, input=said, capture_output=True, text=True, timeout=LONG_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{done.stderr}\n{(sshd.folder / 'log').read_text()}"
            return done.stdout

        said = dora.call("ssh-config", job_id, *login)
        assert "site lets you ssh" in said.err
        sshd.add(entry=said.out)
        assert ssh(f"hpckit-{job_id}", "id -un").strip() == dora.name

        # Dora's key is on the cluster, as `ssh-copy-id` puts it there.
        keys = dora.home / ".ssh" / "authorized_keys"
        keys.parent.mkdir(mode=0o700)
        keys.write_text((sshd.folder / "user.pub").read_text())
        for path in (keys.parent, keys):
            shutil.chown(path, dora.name, dora.name)
        said = dora.call("ssh-config", *login)
        known = next(line for line in said.out.splitlines() if "ssh-ed25519" in line)
        sshd.add(entry=said.out, known_host=known.removeprefix("#").strip())
        # As VS Code starts its server: a script on standard input, a proxy beside it.
        proxy = f"127.0.0.1:{own_sshd.free_port()}"
        where = "hostname; id -un; echo $SLURM_JOB_ID\n"
        seen = ssh("-T", "-D", proxy, "hpckit", "bash", said=where)
        assert seen.split() == ["c1", dora.name, job_id]
        big = sshd.folder / "big"
        big.write_bytes(bytes(range(256)) * 4000)
        ssh("-q", "-S", f"{sshd.bin}/ssh", f"{big}", "hpckit:copy", program="scp")
        assert (dora.home / "copy").read_bytes() == big.read_bytes()
        assert eventually(lambda: not mine("hpckit.session.own_sshd"))
        (dora.work / "enough").touch()
        dora.over(job_id)
        assert "only while the job runs" in dora.call("ssh-config", job_id, expect=2).err
        assert "No job of yours runs" in dora.call("ssh-config", "--proxy", expect=2).err
