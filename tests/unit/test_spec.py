"""What was asked: options as fields, sbatch's other options, values of arrays, changes."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.errors import ConfigError, RequestError
from hpckit.job import Job
from hpckit.job.header import header
from hpckit.job.place import RunPlace
from hpckit.job.resolve import resolve
from hpckit.job_spec.option_words import array_values
from hpckit.job_spec.recorded_spec import spec_from_record, with_changes, without
from hpckit.job_spec.sbatch_words import merge_sbatch, read_sbatch
from hpckit.job_spec.spec import OPTIONS, JobSpec, option_values
from hpckit.run_folders.runs import runs_root
from hpckit.sites import Site, read_site
from tests.pages import ROOT

sys.path.insert(0, str(ROOT / "docs"))
from make_options import PAGE, page

PLACE = RunPlace(run_id="r", dir=Path("/runs/r"), cwd="/w")
# sbatch(1) of Slurm 23.11: long options that hpckit leaves to the user.
FREE = (
    *("acctg-freq", "bb", "begin", "cluster-constraint", "comment", "contiguous", "container"),
    *("core-spec", "cores-per-socket", "cpu-freq", "cpus-per-gpu", "deadline", "delay-boot"),
    *("distribution", "exclusive", "extra", "gpu-bind", "gpu-freq", "gres-flags", "hint", "hold"),
    *("licenses", "mail-type", "mail-user", "mcs-label", "mem-bind", "mem-per-cpu", "mem-per-gpu"),
    *("mincpus", "network", "nice", "no-kill", "nodefile", "nodelist", "overcommit"),
    *("oversubscribe", "power", "prefer", "priority", "profile", "propagate", "reboot", "segment"),
    *("sockets-per-node", "switches", "thread-spec", "threads-per-core", "time-min", "tmp"),
    *("tres-bind", "wait-all-nodes", "wckey"),
)


def made(site: Site | None = None, **words: object) -> Job:
    spec = JobSpec(target="serial", program=__file__, **option_values({"gpus": 0, **words}))
    return resolve(spec, site or Site(name="box"), None, python="python")


def lines(job: Job) -> list[str]:
    return [
        f"--{row['name']}" + ("" if row["value"] is None else f"={row['value']}")
        for row in header(job, PLACE)
    ]


@pytest.mark.parametrize("name", FREE)
def test_options_of_sbatch_that_hpckit_has_no_word_for_are_lines(name: str) -> None:
    assert lines(made(sbatch=[name]))[-1] == f"--{name}"
    assert lines(made(sbatch=[f"{name}=a@b.c:1"]))[-1] == f"--{name}=a@b.c:1"


OWNED = [str(row.sbatch) for row in OPTIONS.values() if row.sbatch]


@pytest.mark.parametrize(
    "text",
    [
        *OWNED,
        *(f"--{name}=1" for name in OWNED),
        *("output=x", "outp=x", "error=x", "chdir=/", "wrap=id", "export=ALL", "parsable"),
        *("gres=gpu:1", "gres=shard:1,gpu:1", "tres-per-task=gres/gpu:1", "ntasks=9", "clusters=b"),
        *("requeue", "no-requeue", "signal=USR1", "array=0-9", "job-nam=x", "test-only"),
    ],
)
def test_what_hpckit_writes_is_refused_with_what_to_use(text: str) -> None:
    with pytest.raises(RequestError, match=r"hpckit (writes|asks for)"):
        read_sbatch(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "=", "=x", "-", "a", "J=x", "Mail=x", "mail type", "mail-type=", "mail-type= "),
        *("comment=a\nb", "comment=a\u2028b", "comment=\x1b[31m", "comment=a\tb"),
        *("mail-type\n#SBATCH --uid=0", "com\\ment=x", "x=\x00", "--", "---hold"),
    ],
)
def test_a_key_or_a_value_that_sbatch_could_misread_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="--sbatch"):
        read_sbatch(text)
    with pytest.raises(RequestError):
        made(sbatch=[text])


def test_a_list_in_python_is_one_value_with_commas() -> None:
    job = made(sbatch={"mail-type": ["END", "FAIL"], "comment": "it's 1 try"})
    assert job.sbatch == ("mail-type=END,FAIL", "comment=it's 1 try")
    assert {"--mail-type=END,FAIL", "--comment=it's 1 try"} < {*lines(job)}


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_refused_or_one_line(key: str, value: str) -> None:
    try:
        read_sbatch(f"{key}={value}")
    except RequestError:
        return
    assert re.fullmatch(r"[\x21-\x7e]+", key)
    assert value.strip()
    assert value.isprintable()


def test_a_later_list_wins_key_by_key(tmp_path: Path) -> None:
    assert merge_sbatch(("hold", "nice=1"), ("--nice=2", "mail-type=END")) == (
        *("hold", "nice=2", "mail-type=END"),
    )
    file = tmp_path / "box.yaml"
    file.write_text("description: d\ndefaults: {sbatch: [exclusive, nice=1], qos: low, time: 2h}\n")
    site = read_site(file)
    assert site.defaults == {"sbatch": ("exclusive", "nice=1"), "qos": "low", "time_min": 120}
    job = made(site, sbatch={"nice": 5, "hold": None})
    assert job.sbatch == ("exclusive", "nice=5", "hold")
    assert {"--qos=low", "--time=02:00:00", "--exclusive", "--nice=5", "--hold"} < {*lines(job)}


def test_words_in_python_and_in_a_shell_mean_the_same() -> None:
    typed = {"gpus": "A100:4", "time": "1h30m", "set": ["lr=0.1"], "array": ["a=1,2"], "after": "7"}
    given = {
        "gpus": "A100:4",
        "time": 90,
        "set": {"lr": 0.1},
        "array": {"a": [1, 2]},
        "after": ["7"],
    }
    assert option_values(typed) == option_values(given)
    assert option_values({"gpus": 4, "nodes": None}) == {"gpus": 4}
    assert option_values({"gpus_per_node": 4}) == {"gpus": 4}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"node": 1}, "no option 'node'. Did you mean 'nodes'"),
        ({"mem": 4}, "no option 'mem'. Use mem_gb=."),
        ({"dependency": 4}, "no option 'dependency'. Use after=."),
        ({"ntasks": 4}, "Use gpus= or tasks_per_node=."),
        ({"cpus": 4}, "Use cpus_per_task=."),
        # Those of submitit.
        ({"timeout_min": 4}, "no option 'timeout_min'. Use time=, in minutes"),
        ({"slurm_array_parallelism": 4}, "Use parallel=."),
        ({"slurm_additional_parameters": {}}, r"Use sbatch=\{\.\.\.\}\."),
        ({"slurm_mem": "4G"}, "Use mem_gb=."),
        ({"gpus": 1, "gpus_per_node": 1}, "gpus and gpus_per_node are the same option"),
        ({"begin": "now"}, r"'begin'. As an option of sbatch: sbatch=\{'begin': 'now'\}\.$"),
        ({"mail_type": "END"}, r"sbatch=\{'mail-type': 'END'\}\.$"),
        ({"gres": "gpu:2"}, r"hpckit asks for GPUs itself\. Use --gpus\.$"),
        ({"mail_type": ["END", "FAIL"]}, r"sbatch=\{'mail-type': \['END', 'FAIL'\]\}\.$"),
        ({"begin": b"now"}, "b'now' cannot be a word of a command line"),
        ({"job_name": "x"}, r"'job_name'. Use name=\.$"),
        ({"nodes": "two"}, "--nodes"),
        ({"nodes": True}, "--nodes"),
        ({"gpus": 1.5}, "--gpus"),
        ({"gpus": True}, "--gpus"),
        ({"time": object()}, "Time"),
        ({"array": 3}, "--array"),
        ({"array": {"lr": {0.1}}}, "list of values"),
        ({"array": {"lr": {"a": 1}}}, "list of values"),
        ({"array": {"lr": iter(())}}, "at least one"),
        (
            {"retry": {"fail": "mem*2"}},
            r"--retry \{'fail': 'mem\*2'\}: it must be a text, or a list",
        ),
        ({"skip_check": {"gpus": False}}, "it must be a text, or a list"),
        ({"after": [7]}, "--after"),
    ],
)
def test_a_wrong_word_or_type_is_named(words: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        option_values(words)


def test_values_come_from_a_file_line_by_line(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "values.txt").write_text("0.1\n\n  a b \nx,y\n@z\n")
    monkeypatch.chdir(tmp_path)
    [text] = option_values({"array": ["lr=@values.txt"]})["array"]
    (tmp_path / "values.txt").write_text("another\n")  # what was asked stays what it was
    assert array_values(text) == ("lr", ["0.1", "  a b ", "x,y", "@z"])
    job = made(array=[text])
    assert job.tasks == (("--lr", "0.1"), ("--lr", "  a b "), ("--lr", "x,y"), ("--lr", "@z"))
    for bad in ("lr=@gone.txt", "lr=@.", "lr=@"):
        with pytest.raises(RequestError, match="cannot be read"):
            option_values({"array": [bad]})
    (tmp_path / "empty").write_text("\n\r\n")
    with pytest.raises(RequestError, match="no line with a value"):
        option_values({"array": ["lr=@empty"]})


@pytest.mark.parametrize(
    ("numbers", "instead"),
    [
        ("4", "--array task=4. Each"),
        ("0-3", "--array task=0,1,2,3. Each"),
        ("1,5-100:5%2", "--array task=1,$(seq -s, 5 5 100) --parallel 2. Each"),
    ],
)
def test_an_array_as_sbatch_takes_it_is_answered_with_what_to_write(
    numbers: str, instead: str
) -> None:
    for words in ({"array": [numbers]}, {"sbatch": [f"array={numbers}"]}):
        with pytest.raises(RequestError) as caught:
            made(**words)
        assert instead in str(caught.value)
    typed = instead.removeprefix("--array ").partition(" --")[0].removesuffix(". Each")
    shown = subprocess.run(["bash", "-c", f"echo {typed}"], capture_output=True, text=True)
    assert array_values(shown.stdout.strip())[1][-1] == {"4": "4", "0-3": "3"}.get(numbers, "100")


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5))
def test_values_of_an_array_come_back_whatever_they_hold(values: list[str]) -> None:
    try:
        [text] = option_values({"array": {"key": values}})["array"]
    except RequestError:
        assert any(value.endswith("\\") or "\0" in value for value in values)
        return
    assert array_values(text) == ("key", values)


def test_lists_are_paired_when_asked() -> None:
    job = made(array=["a=1,2,3", "b=x,y,z"], zip=True)
    assert job.task_settings == ({"a": "1", "b": "x"}, {"a": "2", "b": "y"}, {"a": "3", "b": "z"})
    with pytest.raises(RequestError, match="equal length: a has 2, b has 1"):
        made(array=["a=1,2", "b=x"], zip=True)
    with pytest.raises(RequestError, match="there is none"):
        made(zip=True)


def test_a_request_is_changed_option_by_option_and_key_by_key() -> None:
    spec = JobSpec(target="ddp", settings=("lr=1", "seed=2"), **option_values(
        {"sbatch": ["hold", "nice=1"], "nodes": 2, "gpus": "A100:4", "sample_interval": 0}
    ))  # fmt: skip
    more = option_values({"set": ["lr=3"], "sbatch": ["nice=2"], "time": "1h"})
    changed = with_changes(spec, more)
    assert changed.settings == ("seed=2", "lr=3")
    assert changed.sbatch == ("hold", "nice=2")
    assert (changed.time_min, changed.nodes, changed.sample_interval_s) == (60, 2, 0)
    assert with_changes(changed, option_values({"gpus": 2})).gpu_type == "A100"
    less = without(changed, ["sbatch:hold", "gpus", "set:seed", "sample-interval", "--nodes"])
    assert (less.sbatch, less.settings, less.nodes) == (("nice=2",), ("lr=3",), None)
    assert (less.gpus, less.gpu_type, less.sample_interval_s) == (None, None, 10.0)
    for word, said in (("qos", "did not ask"), ("sbatch:x", "did not ask"), ("gpu", "no option")):
        with pytest.raises(RequestError, match=said):
            without(changed, [word])


def test_every_option_is_recorded_and_read_again() -> None:
    words = {"sbatch": ["hold"], "array": ["a=1,2"], "zip": True, "time": "2h", "gpus": "T4:1"}
    spec = JobSpec(target="ddp", program="x.py", **option_values(words))
    assert spec_from_record({**asdict(spec)}) == spec
    assert spec_from_record({"target": "ddp", "script": "old.py"}).program == "old.py"


def test_the_page_of_options_is_made_of_the_fields() -> None:
    assert PAGE.read_text() == page(), "make docs"


NEW = 'licenses: str | None = _slurm_word("--licenses", "-L", help="As in a:2.", site=True)'


@pytest.mark.long
def test_an_option_is_added_by_one_field(tmp_path: Path) -> None:
    """In a copy of hpckit with one line more: typed, defaulted by a site, recorded, shown."""
    # Of bytecode not even the folders: another process may be writing there, under other names.
    no_bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "hpckit", tmp_path / "hpckit", ignore=no_bytecode)
    for name in ("templates", "workloads"):
        (tmp_path / name).symlink_to(ROOT / name)
    source = tmp_path / "hpckit" / "job_spec" / "spec.py"
    text = source.read_text()
    source.write_text(text.replace("    nodes: int | None", f"    {NEW}\n    nodes: int | None", 1))
    here = tmp_path / "project"
    (here / "templates" / "sites").mkdir(parents=True)
    (here / "hpckit.yaml").write_text("name: p\ndescription: d\n")
    site = here / "templates" / "sites" / "mine.yaml"
    site.write_text("description: d\ndefaults: {licenses: site@s}\n")
    (here / "job.py").touch()

    def typed(*words: str) -> str:
        run = [sys.executable, "-m", "hpckit", *words]
        path = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        said = subprocess.run(run, cwd=here, env=path, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
        return said.stdout

    submit = ("submit", "serial", "job.py", "--gpus", "0")
    assert "#SBATCH --licenses=a:2" in typed(*submit, "-L", "a:2", "--dry-run")
    assert "#SBATCH --licenses=site@s" in typed(*submit, "--site", "mine", "--dry-run")
    assert "site@s" in typed("sites", "show", "mine")
    typed(*submit, "-L", "a:2", "--executor", "local", "--wait", "--name", "x")
    again = ("resubmit", "latest", "--dry-run", "--executor", "slurm")
    assert "#SBATCH --licenses=a:2" in typed(*again)
    assert "#SBATCH --licenses=b" in typed(*again, "--licenses", "b")
    assert "licenses" not in typed(*again, "--unset", "licenses")


def test_gpus_that_a_site_asks_for_as_gres_stay_beside_others() -> None:
    site = Site(name="box", gpu_request="gres")
    assert "--gres=gpu:2,lscratch:100" in lines(made(site, gpus=2, sbatch=["gres=lscratch:100"]))
    assert "--gres=lscratch:100" in lines(made(site, sbatch=["gres=lscratch:100"]))
    for short in ("gre=gpu:2", "gre=lscratch:1", "tres-per=gres/gpu:1"):
        with pytest.raises(RequestError, match="in full"):
            read_sbatch(short)


def test_a_mapping_says_flags_by_none_and_true_alone() -> None:
    given = {"hold": True, "exclusive": False, "nice": 1, "contiguous": None}
    assert option_values({"sbatch": given})["sbatch"] == ("hold", "nice=1", "contiguous")


def test_a_sites_default_is_checked_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "box.yaml"
    for wrong in ("{sbatch: [output=x]}", "{sbatch: [a b]}", "{time: soon}"):
        file.write_text(f"description: d\ndefaults: {wrong}\n")
        with pytest.raises(ConfigError, match=r"box\.yaml:2: "):
            read_site(file)


def test_an_array_that_is_dropped_takes_its_words_along() -> None:
    words = {"array": ["a=1,2"], "zip": True, "parallel": 2}
    spec = without(JobSpec(target="ddp", program="x.py", **option_values(words)), ["array"])
    assert (spec.array, spec.zip, spec.parallel) == ((), False, None)


def test_lines_of_a_file_end_at_newlines_alone(tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes("\ufeff0.1\r\n\ta\x0cb \n\nc\rd\r\n".encode())
    assert option_values({"array": [f"k=@{tmp_path}/v"]})["array"] == ("k=0.1,\ta\x0cb ,c\rd",)


def test_a_line_of_blanks_is_neither_a_value_nor_passed_over(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("0.1\n \t\n0.2\n")
    with pytest.raises(RequestError, match=r"line 2 of '.*v' has nothing but blanks"):
        option_values({"array": [f"k=@{tmp_path}/v"]})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("program", "a\0b"),
        ("module", "a\0b"),
        ("args", ("x", "a\0b")),
        ("settings", ("k=a\0b",)),
        ("array", ("k=a\0b",)),
        ("env", "uv:a\0b"),
        ("after", ("a\0b",)),
        ("checkpoint", "a\0b"),
        ("site", "a\0b"),
    ],
)
def test_no_field_of_a_request_holds_a_nul(field: str, value: object) -> None:
    wanted = r"'.*a\\x00b' contains a NUL byte"
    with pytest.raises(RequestError, match=wanted):
        JobSpec(target="serial", **{field: value})  # type: ignore[arg-type]
    record = {**asdict(JobSpec(target="serial")), field: value}
    with pytest.raises(RequestError, match=wanted):
        spec_from_record(json.loads(json.dumps(record)))


def test_nor_does_the_folder_of_runs() -> None:
    with pytest.raises(RequestError, match="contains a NUL byte"):
        runs_root(Path("a\0b"), None, {})


@pytest.mark.parametrize(
    ("target", "words", "name"),
    [
        ("ddp", {"program": "torchrun"}, "torchrun"),
        ("ddp", {"module": "torch.distributed.run"}, "torch.distributed.run"),
        ("ddp", {"program": "python", "args": ("-m", "accelerate", "launch")}, "accelerate"),
        ("ddp", {"program": "/opt/bin/mpirun"}, "mpirun"),
        ("ddp", {"program": "fabric", "args": ("run", "train.py")}, "fabric"),
        ("ddp", {"program": "lightning", "args": ("run", "train.py")}, "lightning"),
        ("ddp", {"module": "lightning", "args": ("run", "train.py")}, "lightning"),
        ("ddp", {"module": "lightning", "args": ("train",)}, None),
        ("ddp", {"program": "./fabric", "args": ("mesh.json",)}, None),
        ("ddp", {"program": "train", "args": ("-m", "x")}, None),
        ("serial", {"program": "torchrun"}, None),
    ],
)
def test_a_launcher_that_each_rank_would_start_is_told(
    target: str, words: dict[str, Any], name: str | None
) -> None:
    """One task on each node, as for `serial`, is what a launcher needs."""
    job = resolve(JobSpec(target=target, gpus=4, skip_checks=("program",), **words),
                  Site(name="box"), None, python="python")  # fmt: skip
    told = [note for note in job.notes if "starts ranks itself" in note]
    assert [note.startswith(f"{name} starts") for note in told] == ([True] if name else [])
    assert all("would run 4 times on each node" in note for note in told)
