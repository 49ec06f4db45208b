import _socket
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpckit.collections import search_path
from hpckit.environments import EnvironmentKind
from hpckit.errors import ConfigError, RequestError
from hpckit.schemas import schema
from hpckit.sites import (
    PartitionLimits,
    detect_site,
    find_site,
    full_hostname,
    list_sites,
    read_site,
)
from tests.conftest import write_files

FULL = """\
description: Box
contact: me@box
url: https://box
identify: {hostname: "box*", CLUSTER: "b?x"}
defaults: {account: acc, partition: gpu, qos: high, time: 12:00:00, environment: torch}
gpus: {request: gres, per_node: 4, cpus_per_gpu: 16, default_type: A100, types: {A100: 4}}
partitions:
  gpu: {max_time: 2-00:00:00, max_nodes: 8, gpus_per_node: 4, cpus_per_node: 64}
  cpu: {max_time: 30, gpus_per_node: 0, mem_gb_per_node: 512}
modules: lmod
environments:
  torch: {load: [PyTorch/2.10], use: /apps/modules, python: python3}
launch: {mpi: pmix, srun_args: [--cpu-bind=cores], mpirun: mpiexec, mpirun_args: [-v],
         sbatch_args: [--clusters=c]}
env: {OMP_NUM_THREADS: 4, VERSION: 3.10}
setup: [umask 027]
runs: $SCRATCH/runs
"""


def site(tmp_path: Path, text: str):
    path = tmp_path / "box.yaml"
    path.write_text(text)
    return read_site(path)


def test_a_site_file_is_read_whole(tmp_path: Path) -> None:
    box = site(tmp_path, FULL)
    assert (box.name, *map(box.defaults.get, ("account", "partition", "qos"))) == (
        "box",
        "acc",
        "gpu",
        "high",
    )
    assert box.partitions["gpu"] == PartitionLimits(
        name="gpu", max_time_min=2880, max_nodes=8, gpus_per_node=4, cpus_per_node=64
    )
    assert box.partitions["cpu"].gpus_per_node == 0
    assert (box.gpu_request, box.gpu_type, box.gpus_per_node) == ("gres", "A100", 4)
    assert box.environments["torch"].load == ("PyTorch/2.10",)
    assert box.environments["torch"].use == ("/apps/modules",)
    assert (box.mpi, box.mpirun, box.sbatch_args) == ("pmix", "mpiexec", ("--clusters=c",))
    assert box.runs == "$SCRATCH/runs"


PATHS = """\
description: d
environments:
  mine: {kind: venv, path: ~/venvs/torch, use: [$LAB/modules], python: ~/bin/python}
  box: {kind: apptainer, image: "$LAB/a.sif", binds: ["~/data:/data"]}
  far: {kind: apptainer, image: "docker://python:3.12"}
  conda: {kind: conda, path: torch, conda_init: $LAB/conda.sh}
  gone: {kind: venv, path: $NOT_SET/venv}
"""


def test_paths_of_environments_are_those_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setenv("LAB", "/proj/lab")
    monkeypatch.delenv("NOT_SET", raising=False)
    mine, box, far, conda, gone = site(tmp_path, PATHS).environments.values()
    assert (mine.path, mine.use, mine.python) == (
        "/home/alice/venvs/torch",
        ("/proj/lab/modules",),
        "/home/alice/bin/python",
    )
    assert (box.path, box.binds) == ("/proj/lab/a.sif", ("/home/alice/data:/data",))
    assert far.path == "docker://python:3.12"
    assert (conda.path, conda.conda_init) == ("torch", "/proj/lab/conda.sh")
    assert gone.path == "$NOT_SET/venv"


def test_what_a_variable_holds_is_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB", "-rf")
    with pytest.raises(ConfigError, match="begins with a dash"):
        site(tmp_path, PATHS)


def _keys() -> list[tuple[str, str]]:
    """All keys of a site, each with the key that it stands below, or nothing."""
    parts = {"": {"properties": schema("site")["properties"]}} | schema("site")["properties"]
    return [(part, key) for part, row in parts.items() for key in row.get("properties", ())]


@pytest.mark.parametrize(("part", "key"), _keys())
def test_a_misspelt_key_is_told_the_right_one(tmp_path: Path, part: str, key: str) -> None:
    """Also where the file has no such key: what is known does not depend on it."""
    wrong = f"{key}_: 1"
    line = f"{part}: {{{wrong}}}" if part else wrong
    with pytest.raises(ConfigError, match=f"unknown key '{key}_' in .*Did you mean '{key}'"):
        site(tmp_path, f"description: x\n{line}\n")


SHOWN = {
    "login": "login: l.example.org",
    "GPU type      T4, if none is named": "gpus: {types: {T4: 4}, default_type: T4}",
    "needed: --gpus TYPE:N": "gpus: {types: {T4: 4}, type_required: true}",
    "exclude_bad   true": "defaults: {exclude_bad: true}",
    "mpirun        mpiexec -v": "launch: {mpirun: mpiexec, mpirun_args: [-v]}",
    "sbatch        --clusters=c": "launch: {sbatch_args: [--clusters=c]}",
    "passed on     HF_*, A (var": "pass_env: [HF_*, A]",
    "passed on     none (var": "pass_env: []",
    "Grafana       https://g/{jobid}": "grafana: 'https://g/{jobid}'",
    "Prometheus    http://p:9090": "prometheus: 'http://p:9090'",
    "mail          tells users": "notify: {mail: {}}",
    "bad nodes     count for 7 days; always: c7, c8": "bad_nodes: {days: 7, hosts: ['c[7-8]']}",
    "advice        test-qos: off": "advice: {test-qos: off}",
    "advice        cores-per-gpu: cores_per_gpu 16": "advice: {cores-per-gpu: {cores_per_gpu: 16}}",
    "costs         0 EUR per GPU-hour": "costs: {gpu_hour: 0, currency: EUR}",
    "costs         PUE 1.2": "costs: {pue: 1.2}",
    "costs         45 g CO2 per kWh": "costs: {co2_g_per_kwh: 45}",
}


@pytest.mark.parametrize("shown", SHOWN)
def test_show_has_what_a_site_says(here: Path, cli, shown: str) -> None:
    """Also what no job script shows: who set it looks whether it is there."""
    plain = "description: x\n"
    texts = {"a": plain, "b": plain + SHOWN[shown]}
    write_files(here, {f"templates/sites/{name}.yaml": text for name, text in texts.items()})
    assert shown in cli("sites", "show", "b").out
    assert shown not in cli("sites", "show", "a").out


def test_a_link_names_what_hpckit_fills_in(tmp_path: Path) -> None:
    link = "https://g/?var-jobid={jobid}&from={start_ms}&to={end_ms}&var-x=${own}"
    assert site(tmp_path, f"description: x\ngrafana: '{link}'\n").grafana == link
    wrong = link.replace("jobid}", "job_id}")
    why = (
        "box.yaml:2: 'grafana' has '{job_id}', which hpckit does not fill in. Did you mean 'jobid'"
    )
    with pytest.raises(ConfigError, match=why):
        site(tmp_path, f"description: x\ngrafana: '{wrong}'\n")


def test_a_time_without_quotes_is_not_read_in_base_60(tmp_path: Path) -> None:
    assert site(tmp_path, FULL).time_min == 720


def test_versions_in_variables_keep_their_zero(tmp_path: Path) -> None:
    assert site(tmp_path, FULL).env == {"OMP_NUM_THREADS": "4", "VERSION": "3.10"}


@pytest.mark.parametrize("value", ["/opt/bin:$PATH", "${SCRATCH}/hf", "$(hostname)"])
def test_a_variable_that_would_not_be_filled_in_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(
        ConfigError, match=r"box.yaml:2: 'P' is .* Write it in setup: \[\"export P="
    ):
        site(tmp_path, f"description: d\nenv: {{P: '{value}'}}\n")
    assert site(tmp_path, "description: d\nenv: {P: 'a$'}\n").env == {"P": "a$"}


def test_an_endless_time_limit_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"box.yaml:3: .* Without a limit, leave 'max_time' out"):
        site(tmp_path, "description: d\npartitions:\n  long: {max_time: UNLIMITED}\n")


def test_a_site_needs_only_a_description(tmp_path: Path) -> None:
    box = site(tmp_path, "description: d\n")
    assert (box.time_min, box.modules, box.environment, box.partitions) == (60, "none", "none", {})
    with pytest.raises(ConfigError, match=r"box.yaml:1: a site needs 'description:'"):
        site(tmp_path, "contact: c\n")


@pytest.mark.parametrize("name", ["alvis", "generic"])
def test_the_sites_that_are_shipped_can_be_read(name: str, here: Path) -> None:
    found = find_site(name, search_path())
    assert found.name == name
    assert found.description


def test_alvis_knows_its_gpus_and_bundles(here: Path) -> None:
    alvis = find_site("alvis", search_path())
    assert alvis.gpu_type_required
    assert alvis.gpu_types["A100"] == 4
    assert alvis.partitions["alvis"].max_time_min == 7 * 24 * 60
    load = alvis.environments["pytorch"].load
    assert load[0] == "PyTorch-bundle/2.1.2-foss-2023a-CUDA-12.1.1"
    # Notebooks are for those who ask for them.
    with_notebooks = {
        name
        for name, row in alvis.environments.items()
        if any(module.startswith("JupyterLab/") for module in row.load)
    }
    assert with_notebooks == {"pytorch-jupyter", "tensorflow-jupyter"}
    assert alvis.account_required


def test_a_site_changes_advice_and_switches_it_off(tmp_path: Path) -> None:
    text = (
        "description: d\nadvice:\n"
        "  low-gpu-utilization: {red_percent: 10.5, strict: true}\n"
        "  test-qos: {test_qos: [test, 7]}\n"
        "  gpu-errors: off\n"
        "  timeout: 'off'\n"
        "  idle-tail: {}\n"
    )
    assert site(tmp_path, text).advice == {
        "low-gpu-utilization": {"red_percent": 10.5, "strict": True},
        "test-qos": {"test_qos": ("test", 7)},
        "gpu-errors": None,
        "timeout": None,
        "idle-tail": {},
    }
    assert site(tmp_path, "description: d\n").advice == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("timeout: on", r"box.yaml:3: advice 'timeout' must be off, or a mapping"),
        ("timeout: [1]", r"box.yaml:3: 'timeout' is a list"),
        ("timeout:", r"box.yaml:3: advice 'timeout' must be off"),
        ("timeout: {x: y}", r"box.yaml:3: 'x' is 'y', must be a number"),
        ("timeout: {x: }", r"box.yaml:3: 'x' is None, must be a number"),
        ("timeout: {x: [[1]]}", r"box.yaml:3: 'x' must be a list of single values"),
        ("timeout: {x: {y: 1}}", r"box.yaml:3: 'x' is a mapping"),
    ],
)
def test_a_sites_advice_that_cannot_be_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        site(tmp_path, f"description: d\nadvice:\n  {line}\n")


def test_a_site_is_detected_by_host_and_variables(here: Path, monkeypatch) -> None:
    write_files(here, {"templates/sites/box.yaml": FULL})
    assert detect_site(search_path()) == "generic"
    monkeypatch.setenv("CLUSTER", "bax")
    assert detect_site(search_path()) == "generic"
    known = ("box17", ["localhost", "box17.example.org"], ["192.0.2.1"])
    monkeypatch.setattr(_socket, "gethostbyaddr", lambda _: known)
    assert detect_site(search_path()) == "box"


def test_a_name_server_that_does_not_know_this_machine_is_no_error(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(_socket, "gethostbyaddr", unknown)
    assert detect_site(search_path()) == "generic"


@pytest.mark.parametrize("name", ["box17", "box17.example.org"])
def test_the_full_name_is_as_python_finds_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=name))
    assert full_hostname() == socket.getfqdn()


def test_a_changed_site_is_detected_at_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here / "templates" / "sites" / "box.yaml"
    monkeypatch.setenv("CLUSTER", "box")
    for name, expected in (("box", "box"), ("bax", "generic"), ("box", "box")):
        text = f"description: d\nidentify:\n  CLUSTER: {name}\n"
        write_files(here, {"templates/sites/box.yaml": text})
        assert path.stat().st_size == len(text)
        assert [detect_site(search_path()) for _ in range(2)] == [expected] * 2


def test_ones_own_site_is_before_one_of_hpckit_that_fits_too(here: Path, cli, monkeypatch) -> None:
    monkeypatch.setenv("NERSC_HOST", "perlmutter")
    assert detect_site(search_path()) == "perlmutter"
    write_files(here.parent, {"home/.config/hpckit/templates/sites/zlab.yaml":
                              "description: d\nidentify:\n  NERSC_HOST: perl*\n"})  # fmt: skip
    assert detect_site(search_path()) == "zlab"
    assert find_site(None, search_path()).name == "zlab"
    shown = json.loads(cli("sites", "list", "--json").out)
    assert [row["name"] for row in shown if row["here"]] == ["zlab"]
    write_files(here, {"templates/sites/zz.yaml": "description: d\nidentify: {NERSC_HOST: '*r'}\n"})
    assert detect_site(search_path()) == "zz"


def test_a_wrong_site_file_of_others_stops_none_whose_own_fits(here: Path, monkeypatch) -> None:
    monkeypatch.setenv("NERSC_HOST", "perlmutter")
    group = {f"{name}/templates/x.j2": "" for name in ("group", "work")}
    write_files(here.parent, {**group, "group/templates/sites/a.yaml": "description: [\n",
                              "work/templates/sites/zlab.yaml":
                              "description: d\nidentify:\n  NERSC_HOST: perl*\n"})  # fmt: skip
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(here.parent / "group"))
    assert find_site(None, search_path()).name == "zlab"
    (here / "templates" / "sites" / "zlab.yaml").unlink()
    with pytest.raises(ConfigError, match=r"a.yaml:2: is not valid YAML"):
        detect_site(search_path())


def test_the_environment_names_the_site_over_detection(here: Path, monkeypatch) -> None:
    monkeypatch.setenv("HPCKIT_SITE", "alvis")
    assert detect_site(search_path()) == "alvis"


def test_a_site_of_the_project_shadows_the_built_in_one(here: Path) -> None:
    write_files(here, {"templates/sites/alvis.yaml": "description: mine\n"})
    assert find_site("alvis", search_path()).description == "mine"
    assert list_sites(search_path())["alvis"].shadows[0].name == "built-in"


def test_an_environment_is_the_sites_or_the_users_own(tmp_path: Path, here: Path) -> None:
    box = site(tmp_path, FULL)
    assert box.find_environment(None).name == "torch"
    assert box.find_environment("none").kind is EnvironmentKind.NONE
    assert box.find_environment("conda:x").path == "x"
    with pytest.raises(RequestError, match=r"'trch' is not one of site 'box' .* 'torch'\?"):
        box.find_environment("trch")
