"""Other people's scripts under `hpckit submit`: what has to be set for each, and what comes of it.

python benchmarks/foreign.py [--env VENV] [--only WORD] [--json]

Runs each kind of script as it is, on this machine as two nodes with two ranks each: those of
docs/frameworks.md with four, those that accelerate and mpi4py bring with them, and those of
benchmarks/scripts, which we wrote in the styles that people bring. It asserts nothing: it prints a
table of what it saw. The first run makes the environment VENV from benchmarks/foreign.txt; nothing
is fetched after that.

Ranks have met when each names a world of all of them and all end with the same result, though each
had data of its own; of scripts that say nothing, hpckit's own records tell.
"""

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.clients.page import read_page  # noqa: E402

REQUIREMENTS = ROOT / "benchmarks" / "foreign.txt"
SCRIPTS = ROOT / "benchmarks" / "scripts"
LIMIT_S = 420
# What a rank says of itself: ours, accelerate's state, mpi4py's helloworld.
_SAYS = (
    re.compile(r"^rank (?P<rank>\d+) of (?P<world>\d+):.*?(?P<result>\w+ [-+.\d]+)$", re.M),
    re.compile(r"Num processes: (?P<world>\d+)\s+Process index: (?P<rank>\d+)(?P<result>)"),
    re.compile(r"I am process (?P<rank>\d+) of (?P<world>\d+) on(?P<result>)"),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One script: how it is submitted, and what its user has to set for that.

    `script` is a file name in the folder of the run, or a path in the environment, after `{site}`.
    """

    name: str
    submit: str
    set: str = "nothing"
    environ: dict[str, str] = field(default_factory=dict)
    needs: str = "torch"
    ranks: int = 4


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a row. `worlds` has one number per rank that named one."""

    name: str
    set: str
    state: str
    seconds: float | None = None
    worlds: tuple[int, ...] = ()
    met: str = "not said"
    says: str = ""


_TESTS = "{site}/accelerate/test_utils/scripts"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_ON_CPU = {"ACCELERATE_USE_CPU": "1"}

PAGE_SET = {
    "gpt_train.py": "nothing",
    "lightning_train.py": "num_nodes, devices, strategy",
    "trainer_train.py": "use_cpu where there is no GPU",
    "accelerate_train.py": "cpu=True where there is no GPU",
    "deepspeed_train.py": "nothing",
    "submitit_train.py": "overwrite=True",
    "mpi_train.py": "the strategy mpi",
}

OTHERS = (
    Row(
        name="Lightning, plain Trainer()",
        submit="ddp lightning_default.py --nodes 2 --gpus 2",
        set="(nothing was)",
        needs="lightning",
    ),
    Row(
        name="Trainer without use_cpu",
        submit="ddp trainer_without.py --nodes 2 --gpus 2",
        set="(nothing was)",
        needs="transformers",
    ),
    *(
        Row(
            name=f"accelerate's {name}",
            submit=f"ddp {_TESTS}/{name}.py --nodes 2 --gpus 2",
            set="ACCELERATE_USE_CPU=1 where there is no GPU",
            environ=_ON_CPU,
            needs="accelerate",
        )
        for name in ("test_script", "test_ops", "test_sync", "test_distributed_data_loop")
    ),
    Row(
        name="FairScale's OSS", submit="ddp fairscale_oss.py --nodes 2 --gpus 2", needs="fairscale"
    ),
    Row(
        name="torchrun's elastic style",
        submit="ddp elastic.py --nodes 2 --gpus 2 --launcher torchrun -- snapshot.pt",
        set="--launcher torchrun",
    ),
    Row(name="mp.spawn", submit="serial spawn.py -- 4", set="the strategy serial"),
    Row(
        name="torch.distributed.run in serial",
        submit="serial run_module.py -- torch.distributed.run --nproc_per_node 4 plain.py",
        set="the strategy serial",
    ),
    Row(
        name="reads SLURM_PROCID",
        submit="ddp slurm_words.py --nodes 2 --gpus 2",
        set="RANK and WORLD_SIZE instead, where there is no Slurm",
    ),
    *(
        Row(
            name=f"mpi4py.{words}",
            submit=f"mpi run_module.py --nodes 2 --tasks-per-node 2 -- mpi4py.{words}",
            set="the strategy mpi",
            needs="mpi4py",
        )
        for words in (
            "bench helloworld",
            "bench ringtest",
            "bench pingpong --max-size 1024",
            "bench futures --num-tasks 64",
            "run mpi_futures.py",
        )
    ),
    Row(
        name="mpi4py.futures, MPICommExecutor",
        submit="mpi mpi_futures.py --nodes 2 --tasks-per-node 2",
        set="the strategy mpi",
        needs="mpi4py",
    ),
    Row(
        name="a batch script with srun",
        submit="serial batch.sh",
        set="its python script instead",
    ),
)


def rows() -> Iterator[Row]:
    """Yield the page's scripts, then the others."""
    for name, snippet in read_page().items():
        words = shlex.split(snippet.submit)[2:]
        if "--env" in words:
            del words[words.index("--env") : words.index("--env") + 2]
        module = re.findall(r"^(?:import|from) (\w+)", snippet.text, re.MULTILINE)
        others = (word for word in module if word not in {"torch", *sys.stdlib_module_names})
        needs = next(others, "torch")
        yield Row(name=name, submit=shlex.join(words), set=PAGE_SET[name], needs=needs, ranks=8)
    yield from OTHERS


def make_environment(venv: Path) -> None:
    """Make the scripts' environment, once; what may fail to install is tried one by one."""
    if (venv / ".done").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "pip", "install", "--quiet", "-c", ROOT / "constraints-ci.txt"]
    subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#? "):
            subprocess.run([*pip, line.removeprefix("#? ")], check=False)
    (venv / ".done").touch()


def write_scripts(folder: Path) -> None:
    """Put the page's scripts and ours into `folder`."""
    for path in SCRIPTS.glob("*.py"):
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    page = read_page()
    for snippet in page.values():
        (folder / snippet.name).write_text(snippet.text, encoding="utf-8")
    without, count = re.subn(r"^ *use_cpu=.*\n", "", page["trainer_train.py"].text, flags=re.M)
    if count != 1:
        raise ValueError("docs/frameworks.md: trainer_train.py has no line with use_cpu=")
    (folder / "trainer_without.py").write_text(without, encoding="utf-8")
    batch = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\nsrun python plain.py\n"
    (folder / "batch.sh").write_text(batch, encoding="utf-8")


class Bench:
    """A folder to run scripts in, with the environment they get."""

    def __init__(self, folder: Path, venv: Path) -> None:
        self.folder, self.venv = folder, venv
        code = "import site; print(site.getsitepackages()[0])"
        self.site = self.ask(code).strip()
        write_scripts(folder)

    def ask(self, code: str) -> str:
        """Return what the scripts' Python prints for `code`; "" where that fails."""
        argv = [self.venv / "bin" / "python", "-c", code]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout

    def run(self, row: Row) -> Result:
        """Submit a row, wait for its end, read what its ranks said."""
        found = f"import importlib.util as u; print(u.find_spec({row.needs!r}) is not None)"
        if self.ask(found).strip() != "True":
            return Result(name=row.name, set=row.set, state=f"{row.needs} did not install")
        started = time.monotonic()
        answer = self.hpckit(self.argv(row), row.environ)
        seconds = time.monotonic() - started
        if not answer.stdout:
            last = answer.stderr.strip().splitlines()[-1]
            why = last.removeprefix("hpckit: error: ").replace(f"{self.folder}/", "")
            return Result(name=row.name, set=row.set, state="refused", says=why)
        return self.read(row, json.loads(answer.stdout), seconds)

    def argv(self, row: Row) -> list[str]:
        """Return the words after `hpckit`: the row's, and where and how it runs here."""
        words = shlex.split(row.submit.replace("{site}", self.site))
        cut = words.index("--") if "--" in words else len(words)
        here = ["--env", str(self.venv), "--executor", "local", "--wait", "--json"]
        return ["submit", *words[:cut], *here, *words[cut:]]

    def hpckit(
        self, words: Sequence[str], environ: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of hpckit in the folder; a run that never ends is cancelled."""
        environment = {
            **os.environ,
            **_OFFLINE,
            **environ,
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        argv = [sys.executable, "-m", "hpckit", *words]
        where = {"cwd": self.folder, "env": environment, "text": True, "check": False}
        try:
            return subprocess.run(argv, capture_output=True, timeout=LIMIT_S, **where)
        except subprocess.TimeoutExpired:
            cancel = [*argv[:3], "cancel", "latest"]
            subprocess.run(cancel, capture_output=True, timeout=60, **where)
            status = [*argv[:3], "status", "latest", "--json"]
            return subprocess.run(status, capture_output=True, timeout=60, **where)

    def read(self, row: Row, job: dict[str, Any], seconds: float) -> Result:
        """Return what came of a job that has ended."""
        folder = Path(job["run_dir"])
        texts = [path.read_text() for path in sorted((folder / "logs").glob("*.out"))]
        said = [
            (int(match["world"]), match["result"])
            for text in texts
            for pattern in _SAYS
            for match in pattern.finditer(text)
        ]
        records = [
            json.loads(path.read_text())["attempts"][-1]
            for path in sorted(folder.glob("ranks/*.json"))
        ]
        errors = [row["error"] for row in records if row.get("error") and not row["consequence"]]
        return Result(
            name=row.name,
            set=row.set,
            state=job["state"],
            seconds=round(seconds, 1),
            worlds=tuple(world for world, _ in said),
            met=met(row.ranks, said, [record.get("met") for record in records]),
            says=errors[0].strip().splitlines()[-1] if errors else "",
        )


def met(ranks: int, said: Sequence[tuple[int, str]], recorded: Sequence[bool | None]) -> str:
    """Return whether ranks met, from the worlds and results they named, else from the records."""
    if said:
        return "yes" if {world for world, _ in said} == {ranks} and len(set(said)) == 1 else "NO"
    if len(recorded) == ranks and None not in recorded:
        return "yes, on record" if all(recorded) else "NO, on record"
    return "not said"


def print_table(results: Sequence[Result], bench: Bench) -> None:
    """Print what was seen as a Markdown table, with date and versions."""
    print("| script | what to set | state | s | ranks: world | met |")
    print("|---|---|---|---|---|---|")
    for row in results:
        worlds = ", ".join(f"{row.worlds.count(n)}: {n}" for n in sorted(set(row.worlds)))
        seconds = "" if row.seconds is None else f"{row.seconds:.0f}"
        state = f"{row.state}: {row.says}" if row.says else row.state
        print(f"| {row.name} | {row.set} | {state} | {seconds} | {worlds} | {row.met} |")
    names = [re.split("[=]", line.removeprefix("#? "))[0] for line in requirements()]
    ask = "from importlib.metadata import version\n"
    code = f"{ask}for name in {names}:\n print(name, version(name), end=', ')"
    load = os.getloadavg()[0]
    print(f"\n{bench.ask(code)}python {platform.python_version()};", end=" ")
    print(f"{os.cpu_count()} CPUs, load {load:.1f}; {datetime.now(UTC):%Y-%m-%d}")


def requirements() -> list[str]:
    """Return the lines of the requirements, those that may fail included."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and (line[0] != "#" or line.startswith("#? "))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", type=Path, default=ROOT / ".venv-foreign")
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    make_environment(args.env)
    with tempfile.TemporaryDirectory(prefix="hpckit-foreign-") as folder:
        bench = Bench(Path(folder), args.env.absolute())
        results = []
        for row in rows():
            if args.only in row.name:
                results.append(bench.run(row))
                print(results[-1], file=sys.stderr, flush=True)
        if args.json:
            print(json.dumps([asdict(row) for row in results], indent=2))
        else:
            print_table(results, bench)


if __name__ == "__main__":
    main()
