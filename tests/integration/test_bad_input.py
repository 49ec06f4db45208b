"""Bad input: one clear line, the right exit status, nothing left behind."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import HPCKIT, Answer, processes_of, write_files
from tests.patience import LONG_S

pytestmark = pytest.mark.long

SITE = """\
description: A cluster
defaults: {partition: gpu}
gpus: {per_node: 4}
partitions:
  gpu: {max_time: 2h, max_nodes: 8, cpus_per_node: 64, mem_gb_per_node: 256}
  cpu: {max_time: 1-00:00:00, gpus_per_node: 0}
"""
TYPED = "description: d\ngpus: {type_required: true, types: {A100: 4, T4: 8}}\n"
GOOD_SITE = {"templates/sites/box.yaml": SITE}
TYPED_SITE = {"templates/sites/typed.yaml": TYPED}
SCRIPT = {"train.py": "print(1)\n"}
BOX = ("submit", "ddp", "--site", "box", "--dry-run")
EXTENDS = '{% extends "slurm/base.sh.j2" %}'


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    argv: tuple[str, ...]
    status: int
    says: tuple[str, ...]
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    # Answers of the fake sbatch; None: there is no Slurm.
    slurm: Mapping[str, str] | None = None


def case(
    name: str,
    argv: str | tuple[str, ...],
    *says: str,
    status: int = 2,
    files: Mapping[str, str | bytes | None] | None = None,
    env: Mapping[str, str] | None = None,
    slurm: Mapping[str, str] | None = None,
) -> Case:
    words = tuple(argv.split()) if isinstance(argv, str) else argv
    return Case(
        name=name,
        argv=words,
        status=status,
        says=says,
        files=files or {},
        env=env or {},
        slurm=slurm,
    )


def site(text: str | bytes, *says: str, name: str, status: int = 2) -> Case:
    """A wrong site file."""
    return case(
        f"site file: {name}",
        "submit ddp --site box --dry-run",
        *says,
        status=status,
        files={"templates/sites/box.yaml": text},
    )


def workload(text: str | bytes, *says: str, name: str) -> Case:
    """A wrong workload file."""
    return case(
        f"workload file: {name}",
        "submit mine --dry-run",
        *says,
        files={"workloads/mine/workload.yaml": text, "workloads/mine/run.py": "pass\n"},
    )


def manifest(text: str | bytes, *says: str, name: str) -> Case:
    """A wrong hpckit.yaml."""
    return case(f"hpckit.yaml: {name}", "templates list", *says, files={"hpckit.yaml": text})


def template(text: str | bytes, *says: str, name: str) -> Case:
    """A wrong template."""
    return case(
        f"template: {name}",
        "submit ddp --template bad --dry-run",
        *says,
        files={"templates/slurm/bad.sh.j2": text},
    )


def run_folder(content: str | bytes | None, *says: str, name: str, status: int = 2) -> Case:
    """A damaged run folder."""
    return case(
        f"run folder: {name}",
        "status broken-run",
        *says,
        status=status,
        files={"runs/broken-run/run.json": content, "runs/broken-run/logs/0.out": "x"},
    )


def sbatch_says(said: str, *says: str, name: str, argv: str = "submit ddp") -> Case:
    """A job that sbatch refuses."""
    return case(
        f"sbatch refuses: {name}",
        argv,
        *says,
        status=3,
        slurm={"sbatch.rc": "1", "sbatch.err": said},
    )


FAILED = "sbatch: error: Batch job submission failed: "
NAMES = [
    case("unknown workload", "submit resnet", "'resnet'", "Known: ddp"),
    case("nearly a workload", "submit ddpp", "'ddpp'", "Did you mean 'ddp'?"),
    case("strategy without a script", "submit mpi", "'mpi' is a strategy", "submit mpi train.py"),
    case("unknown strategy", "submit fsdp train.py", "'fsdp'", "serial, dp, ddp", files=SCRIPT),
    case("a script without a strategy", "submit train.py", "'train.py' is not a workload",
         "hpckit submit ddp train.py", files=SCRIPT),
    case("a script's argument before --", "submit ddp train.py --lr 0.1", "no option --lr",
         "hpckit submit ddp train.py -- --lr 0.1", files=SCRIPT),
    case("a script's argument with =", "submit ddp train.py --gpus 4 --lr=0.1 --name n",
         "hpckit submit ddp train.py --gpus 4 --name n -- --lr=0.1", files=SCRIPT),
    case("more of a script's arguments behind --", "submit ddp train.py --lr 0.1 -- --wd 3",
         "hpckit submit ddp train.py -- --lr 0.1 --wd 3", files=SCRIPT),
    case("one without -- and one behind it", "submit ddp train.py fit --gpus 2 -- --wd 3",
         "hpckit submit ddp train.py --gpus 2 -- fit --wd 3", files=SCRIPT),
    case("torchrun's meeting", "submit ddp train.py --rdzv_endpoint=c1:1 --gpus 2",
         "lets them meet: leave it out. If it is your program's, it goes last",
         "hpckit submit ddp train.py --gpus 2 -- --rdzv_endpoint=c1:1", files=SCRIPT),
    case("accelerate's number of ranks", "submit ddp train.py --num_processes 4",
         "Use --gpus or --tasks-per-node, per node.", files=SCRIPT),
    case("sacct's word for a job", "stats -j12_3 --json",
         "A job's id stands alone: hpckit stats 12_3."),
    case("another word for a job", "resubmit --jobid 12", "stands alone: hpckit resubmit 12. See"),
    case("a job where none is asked for", "jobs -j 12", "hpckit jobs has no option -j. See"),
    case("a page in place of a script", "stats 12 --html train.py", "--html 'train.py'",
         "ends in .html.", files=SCRIPT),
    case("a report in place of a script", "report --html train.py", "--html 'train.py'",
         "ends in .html.", files=SCRIPT),
    case("a picture of another kind", "stats 12 --png job.svg", "'job.svg'", "must end in .png."),
    case("a script's short argument", "submit ddp train.py --gpus 4 -lr 0.1",
         "hpckit submit ddp train.py --gpus 4 -- -lr 0.1", files=SCRIPT),
    case("a short option among others", "submit ddp train.py -fn4", "no option -n.",
         "last, after `--`.", files=SCRIPT),
    case("a parameter as an option", "submit ddp --batch-size=8", "no option --batch-size",
         "--set batch-size=8"),
    case("an option misspelt", "submit ddp --node 2", "no option --node", "Did you mean --nodes?"),
    case("a command without --", "sample --interval 1 --foo", "no option --foo",
         "hpckit sample -- python"),
    case("a script before its strategy", "submit train.py ddp", "The strategy comes first",
         "hpckit submit ddp train.py", files=SCRIPT),
    case("a launcher for a strategy", ("submit", "torchrun", "a b.py"), "'torchrun' is not a",
         "a b.py'. A workload's", files={"a b.py": "1\n"}),
    case("a script in other capitals", "submit ddp Train.py", "Did you mean 'train.py'?",
         files=SCRIPT),
    case("a path with a space", ("submit", "ddp", "a", "b/x.py"), "b/x.py", "quotes", "after `--`"),
    case("a program without permission", "submit mpi ./solver", "solver' is a compiled program",
         "chmod +x", "--skip-check program", files={"solver": b"\x7fELF\2\1\1\0"}),
    case("a script from Windows", "submit serial batch.sh", "line ends of Windows", "sed -i",
         files={"batch.sh": "#!/bin/bash\r\necho 1\r\n"}),
    case("a word that is nearly a file", "submit serial trian.py", "Did you mean 'train.py'?",
         files=SCRIPT),
    case("values of an array apart", "submit ddp train.py --array lr=1 2", "commas", files=SCRIPT),
    case("a NUL in an array's file", "submit ddp train.py --array x=@v.txt", "'x=@v.txt'",
         "v.txt' has a NUL byte", files={**SCRIPT, "v.txt": b"a\nb\0c\nd\n"}),
    case("a setting apart from its value", "submit ddp --set lr 1", "--set 'lr'", "key=value"),
    case("another program's word", "submit ddp --mem 16G", "--mem.", "Did you mean --mem-gb?"),
    case("Python's word", "runs --since 7d", "No such command 'runs'. Did you mean 'jobs'?"),
    case("an option as a command", "help", "No such command 'help'.", "hpckit --help."),
    case("another option as a command", "completion", "hpckit --install-completion."),
    case("a site's name that is empty", ("sites", "show", ""), "Unknown site ''. Known: "),
    case("another's command", "squeue", "No such command 'squeue'. Did you mean 'jobs'?"),
    case("a shell script alone", "submit job.sh", "'job.sh'", "hpckit submit serial job.sh"),
    case("arguments without --", "submit serial python fit.py 3 --gpus 0", ": fit.py 3.",
         "hpckit submit serial python --gpus 0 -- fit.py 3"),
    case("arguments without -- that an option has, too", "submit serial python 3 --cpus-per-task 3",
         "there is more: 3.", "your program's own arguments go last, after `--`."),
    case("after which job", "submit ddp --after singleton", "'singleton' names no job"),
    case("sbatch's begin", "submit ddp --begin=now+1hour", "--begin.", "--sbatch begin=now+1hour."),
    case("sbatch's short word", "submit ddp -w c1", "option -w.", "--sbatch nodelist=c1."),
    case("sbatch's short word with its value", "submit ddp -wc1", "--sbatch nodelist=c1."),
    case("sbatch's short word that hpckit has", "submit ddp -x c1", "option -x. Use --exclude."),
    case("sbatch's variables", "submit ddp --export=ALL,A=1", "NAME=VALUE hpckit submit"),
    case("sbatch's command", "submit serial x --wrap=hostname", "serial bash --gpus 0 -- -c"),
    case("a script from standard input", "submit serial -", "'-'", "Write the script into a file."),
    case("sbatch's answer for scripts", "submit ddp --parsable", "Use --json."),
    case("sbatch's flag", "scale ddp --exclusive", "no option --exclusive.", "--sbatch exclusive."),
    case("a flag of submit's that scale needs not", "scale ddp --wait",
         "no option --wait. It does that without one; --no-wait switches it off."),
    case("a flag that is there already", "submit ddp --code", "--no-code switches it off."),
    case("arguments for a run's program", "resubmit 7 -- --lr 0.5",
         "arguments for the program, and there is: --lr 0.5.", "run.resubmit(args=[...])"),
    case("sbatch's output", "submit ddp --output x", "run's folder: hpckit logs."),
    case("sbatch's GPUs", "submit ddp --gres gpu:4", "hpckit asks for GPUs itself. Use --gpus."),
    case("sbatch's comment", "submit ddp --comment=$x", "--sbatch 'comment=$x'."),
    case("sbatch's value of two lines", ("submit", "ddp", "--sbatch", "comment=a\nb"),
         r"--sbatch 'comment=a\nb' must be printable text on one line."),
    case("memory with a unit", "submit ddp --mem-gb 16G", "'16G' is not a whole number",
         "hpckit submit --help"),
    case("a workload as a command", "ddp", "No such command 'ddp'", "hpckit submit NAME"),
    case("an unknown command of a group", "sites nope",
         "No such command 'nope'. See `hpckit sites --help`."),
    case("an option before the command", "--nodes 2 submit ddp", "--nodes", "command first"),
    case("a job left out", "logs", "'JOBID'", "`latest` is the newest run"),
    case("sample's command without --", "sample python x.py", "hpckit sample -- python x.py"),
    case("a repository without git+", "collections add github.com/lab/x", "git+https://HOST"),
    case("a module without its kind", "submit ddp --env PyTorch/2.1", "module:PyTorch/2.1)"),
    case("a parameter at resubmit", "resubmit latest --lr=2", "--set lr=2."),
    case("a word too many", "workloads list ddp", "hpckit workloads list takes no such word: ddp",
         "`hpckit workloads list --help`"),
    case("missing script", "submit ddp nowhere.py", "nowhere.py' does not exist"),
    case("a script without its ending", "submit ddp train", "Did you mean 'train.py'?",
         files={"train.py": ""}),
    case("an environment that is a script", "submit ddp --env ./train.py",
         "cannot be started as a python is", files={"train.py": ""}),
    case("an environment that is another program", "submit ddp --env /bin/ls",
         "'/bin/ls' is not one of site", "is a program, but not a Python by its name"),
    case("an environment that is empty", ("submit", "ddp", "--env", ""), "--env is empty"),
    case("a site that is empty", ("submit", "ddp", "--site", ""), "--site is empty"),
    case("a launcher that is empty", ("submit", "ddp", "--launcher", ""), "--launcher is empty"),
    case("a folder of runs that is empty", ("jobs", "--runs", ""), "'--runs': it is empty"),
    case("nodes as Python writes them", "submit ddp --nodes 1_0", "'1_0' is not a whole number"),
    case("nodes in other digits", "submit ddp --nodes ٣", "'٣' is not a whole number"),
    case("a number in a range", "doctor --timeout 1_0", "'1_0' is not a number"),
    case("seconds as Python writes them", "submit ddp --sample-interval 1_0",
         "'1_0' is not a number"),
    case("seconds with a unit", "init --timeout 10s", "'10s' is not a number. See"),
    case("a number of jobs in words", "jobs --limit two", "'two' is not a whole number. See"),
    case("a rank below zero", "logs 4242 --rank -1", "'--rank': -1 is not in the range"),
    case("an interval below zero", "sample --interval -1 -- true",
         "'--interval': -1.0 is not in the range"),
    case("a time in other digits", "submit ddp --time ٣h", "'٣h' is not a duration"),
    case("an age in other digits", "report --since ٣d", "'٣d' is neither an age"),
    case("a parameter as Python writes it", "submit ddp --set epochs=1_0", "epochs='1_0' is not"),
    case("a parameter in other digits", "submit ddp --set lr=٣", "lr='٣' is not"),
    case("a factor as Python writes it", "submit ddp --retry timeout:time*1_0", "the factor must"),
    case("a GPU type left out before its colon", "submit ddp --gpus :2", "':2' must be a number"),
    case("the same of a study", "scale ddp --gpus :1,2", "':1' names no type"),
    case("a script of an unset variable", ("submit", "ddp", ""), "program is empty", "variable"),
    case("script is a folder", "submit ddp code", "code' is a folder", files={"code": None}),
    case("unknown site", "submit ddp --site alviss", "'alviss'", "Did you mean 'alvis'?"),
    case("unknown site in the environment", "submit ddp", "'moon'", env={"HPCKIT_SITE": "moon"}),
    case("unknown template", "submit ddp --template bsae", "'bsae'", "Did you mean 'base'?"),
    case("unknown environment", "submit ddp --env torch9", "'torch9'", "venv:PATH"),
    case("an environment that is a folder", "submit ddp --env .",
         "is a folder, but not of a virtual",
         "no bin/python"),
    case("an environment that is nowhere", "submit ddp --env /nowhere/venv", "does not exist"),
    case("unknown launcher", "submit ddp --launcher aprun", "'aprun'", "mpirun"),
    case("unknown executor", "submit ddp --executor pbs", "'pbs'", "auto, slurm, local"),
    case("unknown partition", (*BOX, "--partition", "gpux"), "'gpux'", "Did you mean 'gpu'?",
         "--skip-check partition", files=GOOD_SITE),
    case("unknown parameter", "submit ddp --set epoch=1", "'epoch'", "Did you mean 'epochs'?"),
    case("unknown array parameter", "submit ddp --array rate=1,2", "'rate'", "lr"),
    case("unknown check", "submit ddp --skip-check speed --dry-run", "'speed'", "partition"),
    case("unknown GPU type", "submit ddp --site typed --gpus X:1 --dry-run", "'X'",
         "A100, T4", files=TYPED_SITE),
    case("GPU type left out", "submit ddp --site typed --gpus 2 --dry-run", "A100:2", "A100, T4",
         files=TYPED_SITE),
    case("show an unknown workload", "workloads show dpd", "'dpd'"),
    case("show an unknown template", "templates show slurm/nope.sh.j2", "'slurm/nope.sh.j2'"),
    case("lint an unknown template", "templates lint nope", "'nope'"),
    case("show an unknown site", "sites show nope", "'nope'"),
    case("diff of a template that shadows none", "templates diff base", "does not shadow another"),
]  # fmt: skip
VALUES = [
    case("GPUs in words", "submit ddp --gpus four", "'four'", "A100:4"),
    case("GPUs of a type in words", "submit ddp --gpus A100:x", "'A100:x'"),
    case("negative GPUs", "submit ddp --gpus -1", "'-1'"),
    case("no nodes", "submit ddp --nodes 0", "--nodes 0", "at least 1"),
    case("negative nodes", "submit ddp --nodes -2", "--nodes -2", "at least 1"),
    case("no CPUs", "submit ddp --cpus-per-task 0", "--cpus-per-task 0"),
    case("no memory", "submit ddp --mem-gb 0", "--mem-gb 0"),
    case("no tasks", "submit ddp train.py --tasks-per-node 0", "--tasks-per-node 0", files=SCRIPT),
    case("negative restarts", "submit ddp --max-requeues -1", "--max-requeues -1"),
    case("negative chain", "submit ddp --chain -1", "--chain -1"),
    case("chain of an array", "submit ddp --chain 2 --array lr=1,2", "--chain 2", "--array"),
    case("chain and requeues", "submit ddp --chain 2 --max-requeues 1", "--max-requeues 1"),
    case("chain on this machine", "submit ddp --chain 2 --executor local", "'local'"),
    case("negative interval", "submit ddp --sample-interval -1", "--sample-interval -1"),
    case("no number as interval", "submit ddp --sample-interval nan", "--sample-interval nan"),
    case("endless interval", "submit ddp --sample-interval inf", "--sample-interval inf"),
    case("time in words", "submit ddp --time tomorrow", "'tomorrow'", "1h30m"),
    case("no time", "submit ddp --time 0", "'0'"),
    case("empty time", ("submit", "ddp", "--time", ""), "''"),
    case("negative time", "submit ddp --time -5", "'-5'"),
    case("too many colons", "submit ddp --time 1:2:3:4", "'1:2:3:4'"),
    case("name of two lines", ("submit", "ddp", "--name", "a\nb"), r"'a\nb'", "one line"),
    case("blank name", ("submit", "ddp", "--name", " "), "' '"),
    case("account with a space", ("submit", "ddp", "--account", "a b"), "'a b' holds ' '"),
    case("partition with a command", ("submit", "ddp", "-p", "$(id)"), "'$(id)'"),
    case("QOS of two lines", ("submit", "ddp", "--qos", "a\n#SBATCH"), r"'a\n#SBATCH'"),
    case("empty constraint", ("submit", "ddp", "-C", ""), "--constraint is empty"),
    case("a float for an int", "submit ddp --set epochs=1.5", "epochs='1.5'", "int"),
    case("a word for a float", "submit ddp --set lr=fast", "lr='fast'", "float"),
    case("a word for a flag", "submit ddp --set verbose-shapes=maybe", "'maybe'", "bool"),
    case("below the range", "submit ddp --set epochs=0", "epochs=0", "at least 1"),
    case("not a number", "submit ddp --set lr=nan", "lr=nan"),
    case("not among the choices", "submit ddp --set optimizer=lion", "'lion'", "adam, sgd"),
    case("no equals sign", "submit ddp --set epochs", "'epochs'", "key=value"),
    case("no key", "submit ddp --set =5", "'=5'", "key=value"),
    case("a parameter twice", "submit ddp --set lr=1 --set lr=2", "'lr'", "twice"),
    case("a parameter twice, spelt two ways", "submit ddp --set batch_size=1 --set batch-size=2",
         "'batch-size'", "twice"),
    case("--set on a user's script", "submit ddp train.py --set lr=1", "lr=1", "--", files=SCRIPT),
    case("array without values", "submit ddp --array lr", "'lr'", "key=a,b,c"),
    case("array with an empty value", "submit ddp --array lr=0.1,", "'lr=0.1,'", "empty value"),
    case("array with nothing", "submit ddp --array lr=", "'lr='", "empty value"),
    case("array of a wrong type", "submit ddp --array epochs=1,x", "epochs='x'"),
    case("array twice", "submit ddp --array lr=1 --array lr=2", "'lr'", "twice"),
    case("array with a key that is no option", ("submit", "ddp", "train.py", "--array", "a b=1"),
         "'a b'", files=SCRIPT),
    case("--parallel without an array", "submit ddp --parallel 2", "--parallel", "--array"),
    case("--parallel 0", "submit ddp --array lr=1 --parallel 0", "--parallel 0"),
    case("--after an unknown job", "submit ddp --after nope", "'nope'"),
    case("--after an unknown kind", "submit ddp --after never:12", "'never'", "afterok"),
    case("--after nothing", "submit ddp --after afterok:", "''"),
    case("arguments too long", ("submit", "ddp", "train.py", "--", "x" * 130_000), "120000",
         "file", files=SCRIPT),
    case("--check on this machine", "submit ddp --check --executor local", "--check",
         "leave --executor local out"),
]  # fmt: skip
SIZES = [
    case("GPUs over the node's", (*BOX, "--gpus", "6"), "--gpus 6", "the 4 of a node",
         "--nodes 2 --gpus 3", "--skip-check gpus", files=GOOD_SITE),
    case("GPUs on a partition without", (*BOX, "-p", "cpu"), "'cpu' have no GPU", "--gpus 0",
         files=GOOD_SITE),
    case("GPUs over the type's", "submit ddp --site typed --gpus T4:9 --dry-run", "--gpus 9",
         "the 8", "T4", files=TYPED_SITE),
    case("nodes over the limit", (*BOX, "--nodes", "9"), "--nodes 9", "8 nodes",
         "--skip-check nodes", files=GOOD_SITE),
    case("time over the limit", (*BOX, "--time", "3h"), "03:00:00", "02:00:00",
         "--skip-check time", files=GOOD_SITE),
    case("CPUs over the node's", (*BOX, "--gpus", "4", "--cpus-per-task", "17"),
         "4 tasks x 17 CPUs = 68", "64", "--skip-check cpus", files=GOOD_SITE),
    case("memory over the node's", (*BOX, "--mem-gb", "300"), "--mem-gb 300", "256 GiB",
         "--skip-check mem", files=GOOD_SITE),
    case("several nodes, one process", "submit serial train.py --nodes 3", "'serial'",
         "--nodes 3", "ddp, mpi", "--skip-check multi-node", files=SCRIPT),
    case("mpirun without MPI", "submit ddp --launcher mpirun", "mpirun", "'ddp'",
         "--skip-check launcher"),
    case("torchrun for MPI", "submit mpi train.py --launcher torchrun", "torchrun", files=SCRIPT),
    case("tasks of one process", "submit serial train.py --gpus 0 --tasks-per-node 3",
         "--tasks-per-node 3", "'serial' is one process", "ddp or mpi", files=SCRIPT),
    case("tasks against GPUs", "submit ddp train.py --gpus 2 --tasks-per-node 3",
         "--tasks-per-node 3", "--gpus 2", files=SCRIPT),
]  # fmt: skip
DOC = "description: d\n"
WORK = DOC + "strategy: ddp\nscript: run.py\n"
YAML = [
    site("a: [1\n", "box.yaml:2", "not valid YAML", name="a bracket left open"),
    site("\tdescription: d\n", "box.yaml:1", "not valid YAML", name="a tab"),
    site(DOC + "moduls: lmod\n", "box.yaml:2", "'moduls'", "Did you mean 'modules'?",
         name="unknown key"),
    site(DOC + "description: e\n", "box.yaml:2", "'description'", "twice", name="a key twice"),
    site("a: &x 1\nb: *x\n", "box.yaml:1", "aliases", name="an alias"),
    site("- a\n", "box.yaml:1", "must be a mapping", name="a list"),
    site("just words\n", "box.yaml:1", "must be a mapping", name="a text"),
    site("", "box.yaml", "description", name="empty"),
    site(b"description: \xff\xfe\n", "box.yaml", "UTF-8", name="not UTF-8"),
    site('description: d\nenv: {A: "x\\0y"}\n', "box.yaml:2: 'x\\x00y' contains a NUL",
         name="a NUL that is written out"),
    site('description: d\nenv: {"A\\0": x}\n', "box.yaml:2: 'A\\x00' contains a NUL",
         name="a NUL in a key"),
    site(b"description: a\0b\n", "box.yaml", "not valid YAML", name="a null byte"),
    site(DOC + "gpus: 4\n", "box.yaml:2", "'gpus' is 4", "mapping", name="a number for a mapping"),
    site(DOC + "gpus: {per_node: many}\n", "box.yaml:2", "'many'", "whole number",
         name="a word for a number"),
    site(DOC + "gpus: {per_node: 0}\n", "box.yaml:2", "'per_node' is 0", name="too small"),
    site(DOC + "modules: lmodd\n", "box.yaml:2", "'lmodd'", "lmod", name="not among the choices"),
    site(DOC + "defaults: {time: soon}\n", "box.yaml:2", "'soon'", name="no duration"),
    site(DOC + "defaults: {environment: torch}\n", "box.yaml:2", "'torch'",
         name="unknown default environment"),
    site(DOC + "partitions: {a: {}}\ndefaults: {partition: b}\n", "box.yaml:3", "'b'",
         name="unknown default partition"),
    site(DOC + "environments: {e: {kind: venv}}\n", "box.yaml:2", "'e'", "path:",
         name="venv without a path"),
    site(DOC + "environments: {e: {kind: docker}}\n", "box.yaml:2", "'docker'", "apptainer",
         name="unknown kind of environment"),
    site(DOC + "when: !!python/object/apply:os.system [touch pwned]\n", "box.yaml:2",
         name="a tag that builds objects"),
    site(DOC + "gpus: {per_node: 2026-13-45}\n", "box.yaml:2", "'2026-13-45'",
         name="a date that is none"),
    site(DOC + "gpus: {per_node: 0x_}\n", "box.yaml:2", "'0x_'", name="a number that is none"),
    site(DOC + "env: {'A B': 1}\n", "box.yaml:2", "'A B'", name="no name of a variable"),
    site(DOC + "env: {'A;id': 1}\n", "box.yaml:2", "'A;id'", name="a variable with a command"),
    site(DOC + "a: " + "[" * 3000 + "\n", "box.yaml", name="very deep"),
    workload(WORK + "strateggy: ddp\n", "workload.yaml:4", "'strateggy'", "'strategy'",
             name="unknown key"),
    workload(DOC + "strategy: fsdp\nscript: run.py\n", "workload.yaml:2", "'fsdp'",
             name="unknown strategy"),
    workload(DOC + "strategy: ddp\nscript: nope.py\n", "workload.yaml:3", "nope.py",
             name="missing script"),
    workload(DOC + "strategy: ddp\n", "workload.yaml:1", "'script:'", name="no script"),
    workload(DOC + "strategy: ddp\nprogram: nope.sh\n", "workload.yaml:3", "nope.sh",
             name="missing program"),
    workload(WORK + "program: lmp\n", "workload.yaml:4", "not both", name="script and program"),
    workload(WORK + "parameters: {lr: {type: number, help: h}}\n", "workload.yaml:4", "'number'",
             name="unknown type"),
    workload(WORK + "parameters: {lr: {type: int, help: h, default: x}}\n", "workload.yaml:4",
             "'x'", name="default of another type"),
    workload(WORK + "parameters: {lr: {type: int, help: h, minimum: low}}\n", "workload.yaml:4",
             "'low'", name="a word for a limit"),
    workload(WORK + "parameters: {lr: {type: int}}\n", "workload.yaml:4", "'help:'",
             name="parameter without help"),
    workload(WORK + "parameters: {a-b: {help: h}, a_b: {help: h}}\n", "workload.yaml:4", "a-b",
             name="a parameter twice, spelt two ways"),
    workload(WORK + "parameters: {a b: {help: h}}\n", "workload.yaml:4", "'a b'",
             name="a parameter that is no option"),
    workload(WORK + "resources: {gpus: -1}\n", "workload.yaml:4", "-1", name="negative GPUs"),
    workload(WORK + "launcher: aprun\n", "'aprun'", name="unknown launcher"),
    workload(WORK + "environment: torch9\n", "'torch9'", name="unknown environment"),
    workload(b"\xff", "workload.yaml", "UTF-8", name="not UTF-8"),
    manifest("name: lab\ncontakt: x\n", "hpckit.yaml:2", "'contakt'", "Did you mean 'contact'?",
             name="unknown key"),
    manifest("name: [lab]\n", "hpckit.yaml:1", "a list", name="a list for a text"),
    manifest("name: lab\nname: lab\n", "hpckit.yaml:2", "twice", name="a key twice"),
    manifest("name: 'lab\n", "hpckit.yaml:2", "not valid YAML", name="a quote left open"),
    manifest("name: lab\nhpckit: '>=99.0'\n", "hpckit.yaml:2", "99.0", "Install a newer one",
             name="wants a newer hpckit"),
    case("HPCKIT_COLLECTIONS names a missing folder", "submit ddp --dry-run", "/no/such/lab",
         env={"HPCKIT_COLLECTIONS": "/no/such/lab"}),
    case("HPCKIT_COLLECTIONS names a folder that holds nothing", "templates list", "empty",
         files={"empty": None}, env={"HPCKIT_COLLECTIONS": "empty"}),
]  # fmt: skip
ESCAPE = "{{ ''.__class__.__mro__ }}"
TEMPLATES = [
    template("#!/bin/bash\n\n{{ nodez }}\n", "bad.sh.j2:3", "'nodez'", "templates vars",
             name="undefined variable"),
    template("#!/bin/bash\n{% if nodez %}{% endif %}\n", "bad.sh.j2:2", "'nodez'",
             name="undefined variable in a test"),
    template("#!/bin/bash\n{{ run.idd }}\n", "bad.sh.j2:2", "'idd'", name="undefined attribute"),
    template("#!/bin/bash\n{% if nodes %}\n", "bad.sh.j2:2", "endif", name="if left open"),
    template("#!/bin/bash\n{{ nodes\n", "bad.sh.j2", name="expression left open"),
    template("#!/bin/bash\n{% bock a %}\n", "bad.sh.j2:2", "'bock'", name="unknown statement"),
    template('#!/bin/bash\n\necho "{{ nodes }}"\n', "bad.sh.j2:3", "{{ nodes }}", "quotes",
             name="expression inside quotes"),
    template("#!/bin/bash\ncat <<EOF\n{{ nodes }}\nEOF\n", "bad.sh.j2:3", "here-document",
             name="expression inside a here-document"),
    template('#!/bin/bash\n{% include "slurm/nope.sh.j2" %}\n', "slurm/nope.sh.j2", "bad.sh.j2",
             name="missing include"),
    template('{% extends "lab:slurm/base.sh.j2" %}\n', "'lab'", name="unknown collection"),
    template('{% extends "slurm/bad.sh.j2" %}\n', "bad.sh.j2", "extends itself",
             name="extends itself with nothing below"),
    template('#!/bin/bash\n{% include "../../secret" %}\n', "../../secret",
             name="points outside the collections"),
    template('#!/bin/bash\n{% include "/etc/passwd" %}\n', "/etc/passwd", name="absolute path"),
    template('#!/bin/bash\n{% include ["a.j2", "b.j2"] %}\n', "b.j2", name="none of two includes"),
    template("#!/bin/bash\n{% for a in range(10 ** 9) %}x{% endfor %}\n", "range", "bad.sh.j2:2",
             name="a range bomb"),
    template("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}\n", "bad.sh.j2",
             name="a macro without end"),
    template("#!/bin/bash\n{% for a in header %}{% for b in header %}{% for c in header %}"
             "{% for d in header %}{% for e in header %}{% for f in header %}xxxxxxxxxxxxxxxxxxxx"
             "{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}\n",
             "bad.sh.j2", "50000 loop rounds", name="endless output"),
    template(f"#!/bin/bash\n{ESCAPE}\n", "bad.sh.j2:2", "unsafe", name="sandbox escape by class"),
    template("#!/bin/bash\n{{ refuse.__globals__ }}\n", "bad.sh.j2:2", "unsafe",
             name="sandbox escape by a function"),
    template("#!/bin/bash\n{{ nodes.__init__ }}\n", "bad.sh.j2:2", "unsafe",
             name="sandbox escape by a number"),
    template("#!/bin/bash\n{{ '%s' | format(nodes) }}\n", "bad.sh.j2:2", "format",
             name="unknown filter"),
    template("#!/bin/bash\n{{ nodes | safe }}\n", "bad.sh.j2:2", "safe", name="filter safe"),
    template("#!/bin/bash\n{{ mem_gb }}\n", "bad.sh.j2:2", "none", name="prints a none"),
    template("#!/bin/bash\n{{ nodes / 0 }}\n", "bad.sh.j2:2", "division by zero",
             name="division by zero"),
    template("#!/bin/bash\n{{ nodes + 'x' }}\n", "bad.sh.j2:2", name="adds apples and pears"),
    template(f'{EXTENDS}{{% block launch %}}{{{{ refuse("two nodes at most") }}}}{{% endblock %}}',
             "two nodes at most", name="refuses by itself"),
    template(b"#!/bin/bash\n\xff\n", "bad.sh.j2", name="not UTF-8"),
    template("", "bad.sh.j2", "#!", name="empty"),
    case("modules wanted of a site that has none",
         "submit ddp --site own --env module:CUDA/12 --dry-run", "site 'own' says 'modules: none'",
         "lmod", "hpckit init",
         files={"templates/sites/own.yaml": "description: d\nmodules: none\n"}),
]  # fmt: skip
PLAN = {"nodes": 1, "tasks_per_node": 1, "ranks": 1, "total_gpus": 0, "time_min": 1,
        "strategy": "ddp", "launcher": "srun"}  # fmt: skip
RECORD = {"run_id": "broken-run", "job_id": "local-1", "executor": "local", "plan": PLAN,
          "submitted_at": 1.0, "name": "x", "cwd": "/", "request": {}, "parameters": {},
          "command": [], "hpckit_version": "0"}  # fmt: skip
RUNS = [
    case("status of an unknown job", "status 999", "'999'", "hpckit jobs"),
    case("logs of an unknown job", "logs 999", "'999'"),
    case("cancel of an unknown job", "cancel 999", "'999'"),
    case("wait for an unknown job", "wait 999", "'999'"),
    case("resubmit of an unknown job", "resubmit 999", "'999'"),
    case("a job id with a path", "status ../etc", "'../etc'"),
    case("latest without runs", "status latest", "no run yet", "hpckit submit ddp"),
    case("a folder that is no run", "status ./code", "code", "run.json", files={"code": None}),
    run_folder('{"run_id": "brok', "run.json is damaged", name="torn in half"),
    run_folder("", "run.json is damaged", name="empty"),
    run_folder("[]", "run.json is damaged", name="a list"),
    run_folder("{}", "run.json is damaged", "'run_id' is missing", name="nothing in it"),
    run_folder(json.dumps({**RECORD, "plan": {**PLAN, "ranks": "two"}}), "is damaged", "two",
               name="a word for a number"),
    run_folder(json.dumps({**RECORD, "plan": None}), "run.json is damaged", name="no plan"),
    run_folder(json.dumps({**RECORD, "array": 5}), "run.json is damaged", name="array a number"),
    run_folder(b"\xff\xfe", "run.json is damaged", name="not UTF-8"),
    run_folder(None, "run.json is damaged", "not a regular file", name="run.json is a folder"),
    run_folder(json.dumps({**RECORD, "plan": {"ranks": 1}}), "run.json is damaged", "'plan.nodes'",
               name="half of the plan"),
    run_folder(json.dumps({**RECORD, "submitted_at": "noon"}), "run.json is damaged", "noon",
               name="a word for a time"),
    case("resubmit of another version's run", "resubmit broken-run", "another version",
         files={"runs/broken-run/run.json": json.dumps({**RECORD, "request": {"gpu": 4}})}),
    case("resubmit from a folder that is gone", "resubmit broken-run", "/no/such/place", status=3,
         files={"runs/broken-run/run.json": json.dumps(
             {**RECORD, "cwd": "/no/such/place", "request": {"target": "ddp"}})}),
    case("resubmit of another request", "resubmit broken-run", "'resnet'",
         files={"runs/broken-run/run.json": json.dumps(
             {**RECORD, "request": {"target": "resnet"}})}),
    case("a rank that the run has not", "logs broken-run --rank 7", "Rank 7", "0 to 0",
         files={"runs/broken-run/run.json": json.dumps(RECORD)}),
    case("jobs where runs is a file", "jobs --runs notes", "notes", status=3,
         files={"notes": "x"}),
]  # fmt: skip
OUTSIDE = [
    case("no Slurm", "submit ddp --executor slurm", "sbatch", "--executor local", status=3),
    case("--check without Slurm", "submit ddp --check --executor slurm", "sbatch", status=3),
    sbatch_says("sbatch: error: invalid partition specified: gpux\n"
                + FAILED + "Invalid partition name specified\n",
                "invalid partition specified: gpux", "sinfo -s", name="bad partition",
                argv="submit ddp --partition gpux"),
    sbatch_says(FAILED + "Invalid account or account/partition combination specified\n",
                "Invalid account", "sacctmgr", name="bad account"),
    sbatch_says(FAILED + "Invalid qos specification\n", "Invalid qos", name="bad QOS"),
    sbatch_says(FAILED + "Requested node configuration is not available\n",
                "Requested node configuration", "--gpus", "--exclude", name="no such node"),
    sbatch_says(FAILED + "Invalid node name specified\n", "Invalid node name", "sinfo -N",
                "--exclude", name="bad node", argv="submit ddp --exclude n99"),
    sbatch_says(FAILED + "Requested time limit is invalid (missing or exceeds some limit)\n",
                "time limit", "Lower --time", name="time limit"),
    sbatch_says("sbatch: Welcome to the cluster\n" + FAILED
                + "Unable to contact slurm controller (connect failure)\n",
                "Unable to contact slurm controller", "again", name="controller down"),
    sbatch_says("", "sbatch refused the job", name="without a word"),
    sbatch_says(FAILED + "Invalid qos specification\n", "Invalid qos", name="an array",
                argv="submit ddp --array lr=0.1,0.2 --parallel 1"),
    sbatch_says("sbatch: error: Invalid qos specification\nallocation failure: Invalid qos "
                "specification\n", "Invalid qos", name="under --check", argv="submit ddp --check"),
    case("sbatch talks nonsense", "submit ddp", "gave no job id", "Have a nice day", status=3,
         slurm={"sbatch.out": "Have a nice day\n"}),
    case("sbatch says nothing", "submit ddp", "gave no job id", status=3, slurm={"sbatch.out": ""}),
    case("sbatch fails on stdout", "submit ddp", "disk full", status=3,
         slurm={"sbatch.rc": "1", "sbatch.out": "error: disk full\n"}),
    case("a file in the way of --runs", "submit ddp --executor local --runs notes/runs",
         "notes/runs", "--runs DIR", status=3, files={"notes": "x"}),
    case("a file in the way of HPCKIT_RUNS", "submit ddp --executor local", "notes", status=3,
         files={"notes": "x"}, env={"HPCKIT_RUNS": "notes"}),
    case("a run folder whose name submitit rewrites", "submit ddp --executor local --runs a%j/b",
         "a%j/b", "%j", "--runs DIR"),
    case("--after a local run for Slurm", "submit ddp --after afterok:gone", "'gone'", slurm={}),
]  # fmt: skip
CASES = [*NAMES, *VALUES, *SIZES, *YAML, *TEMPLATES, *RUNS, *OUTSIDE]


@pytest.fixture
def prepared(request: pytest.FixtureRequest, here: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    given: Case = request.param
    monkeypatch.setattr("hpckit.schedulers.slurm.sbatch._UNREACHED_S", 0)
    write_files(here, given.files)
    for name, value in given.env.items():
        monkeypatch.setenv(name, value)
    if given.slurm is not None:
        write_files(request.getfixturevalue("fake_slurm"), given.slurm)
    return given


@pytest.mark.parametrize("prepared", CASES, ids=lambda row: row.name, indirect=True)
def test_bad_input_gets_one_clear_line_and_leaves_nothing(
    prepared: Case, here: Path, cli: Callable[..., Answer]
) -> None:
    before = tree(here.parent)
    answer = cli(*prepared.argv)
    check_message(answer, prepared)
    assert answer.status == prepared.status, answer.err
    assert tree(here.parent) == before
    assert processes_of(here.parent) == []


def check_message(answer: Answer, given: Case) -> None:
    lines = answer.err.splitlines()
    assert answer.out == ""
    assert len(lines) == 1, answer.err
    assert lines[0].startswith("hpckit: error: "), answer.err
    assert lines[0].isprintable(), answer.err
    assert [words for words in given.says if words not in lines[0]] == [], answer.err


_AROUND_KEPT = (Path("home/.cache"), Path("home/.cache/hpckit"))


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return every file and folder with its bytes; what the fake Slurm writes is its own.

    hpckit's own folders in a home, where nothing is in them, are no trace of a submission; neither
    is what it keeps of templates and sites (`hpckit.kept`), as Python its bytecode.
    """
    found = {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }
    return {
        str(path): content
        for path, content in found.items()
        if "__pycache__" not in path.parts and path.parts[0] != "slurm"
        if content is not None or path.parts[:2] != ("home", ".local")
        if not path.is_relative_to("home/.cache/hpckit/made") and path not in _AROUND_KEPT
    }


USAGE = [
    (("submit", "ddp", "--nodes", "two"), "'two'"),
    (("submit", "ddp", "--mem-gb", "1.5"), "'1.5'"),
    (("submit", "ddp", "--sample-interval", "often"), "'often'"),
    (("submit", "ddp", "--nodse", "2"), "--nodse"),
    (("submit", "ddp", "--nodes"), "--nodes"),
    (("submit",), "NAME"),
    (("submit", "ddp", "a.py", "b.py"), "b.py"),
    (("sumbit", "ddp"), "'sumbit'"),
    (("workloads", "shwo", "ddp"), "'shwo'"),
    (("logs", "1", "--rank", "first"), "'first'"),
    (("wait", "1", "--timeout", "soon"), "'soon'"),
    (("jobs", "--limit", "all"), "'all'"),
    (("jobs", "--limit", "-3"), "-3"),
]


@pytest.mark.parametrize(("argv", "says"), USAGE, ids=lambda value: " ".join(value)[:40])
def test_what_the_command_line_does_not_know_is_a_usage_error(
    argv: tuple[str, ...], says: str, here: Path, cli: Callable[..., Answer]
) -> None:
    answer = cli(*argv)
    assert (answer.status, answer.out) == (2, "")
    assert says in answer.err
    assert "Traceback" not in answer.err
    assert list(here.iterdir()) == []


PROCESS = [
    (("submit", "resnet"), 2, "'resnet'"),
    (("submit", "ddp", "--executor", "slurm"), 3, "sbatch"),
    (("status", "latest"), 2, "no run yet"),
    (("submit", "ddp", "--set", "lr=\u00e9\u2028"), 2, "lr="),
    (("submit", "ddp", "--name", b"\xff".decode(errors="surrogateescape")), 2, "--name"),
    (("submit", b"\xff.py".decode(errors="surrogateescape")), 2, "is not a workload"),
]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize(("argv", "status", "says"), PROCESS, ids=lambda value: repr(value)[:40])
def test_a_process_of_its_own_says_the_same_in_any_locale(
    argv: tuple[str, ...], status: int, says: str, locale: str, here: Path
) -> None:
    done = subprocess.run(
        [*HPCKIT, *argv],
        capture_output=True,
        check=False,
        timeout=LONG_S,
        env={**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    lines = done.stderr.decode("utf-8", "surrogateescape").splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (status, b"", 1), done.stderr
    assert lines[0].startswith("hpckit: error: ")
    assert says in lines[0]
    assert list(here.iterdir()) == []
