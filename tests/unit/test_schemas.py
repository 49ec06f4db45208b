"""JSON Schemas against the strict readers: both know the same keys, and no schema is stricter."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from hpckit.collections import Collection, builtin_folder
from hpckit.collections.collection import Found, describe_shared
from hpckit.collections.lockfile import read_lock
from hpckit.documents import Fields, read_document
from hpckit.errors import ConfigError
from hpckit.lint import lint_collection
from hpckit.schemas import KINDS, schema, schema_text
from hpckit.sinks import read_config
from hpckit.sites import read_site
from hpckit.sites.node_rules import read_rules
from hpckit.stats.advice.reading import read_rule
from hpckit.workloads import read_workload
from tests.conftest import Answer
from tests.pages import blocks
from tests.unit.lab import make_repository
from tests.unit.made import BUILTIN

Cli = Callable[..., Answer]
ROOT = Path(__file__).parents[2]

# Every key that a reader accepts, with values that it takes.
WHOLE: dict[str, dict[str, Any]] = {
    "collection": {
        "name": "lab", "description": "d", "contact": "c", "url": "u", "hpckit": ">=0.1",
        "ledger": "/proj/ledger",
        "code": {"keep": True, "include": ["a"], "exclude": ["b/*"], "max_mb": 9},
    },
    "site": {
        "description": "d", "contact": "c", "url": "u", "identify": {"hostname": "x*"},
        "account_required": True,
        "defaults": {
            "partition": "gpu", "account": "a", "qos": "q", "constraint": "c", "time": "2h",
            "sbatch": ["exclusive"], "environment": "torch", "exclude_bad": True, "no_code": True,
        },
        "gpus": {
            "request": "gres", "per_node": 2, "cpus_per_gpu": 8, "types": {"A100": 2},
            "default_type": "A100", "type_required": True, "cpu_masks": ["0x1", "0x2"],
        },
        "partitions": {
            "gpu": {
                "max_time": "1h", "max_nodes": 2, "gpus_per_node": 4, "cpus_per_node": 8,
                "mem_gb_per_node": 9, "whole_nodes": True,
            }
        },
        "modules": "lmod",
        "environments": {
            "torch": {"kind": "venv", "path": "/v", "load": ["a"], "use": ["/m"],
                      "conda_init": "/c", "binds": ["/x"], "python": "python3"},
            "box": {"kind": "apptainer", "image": "/i"},
        },
        "launch": {"mpi": "pmix", "srun_args": ["-v"], "mpirun": "m", "mpirun_args": ["-v"],
                   "sbatch_args": ["-v"]},
        "env": {"A": "b"}, "pass_env": ["X_*"], "setup": ["true"], "runs": "r", "ledger": "/l",
        "grafana": "https://g.example/{jobid}",
        "prometheus": {
            "url": "http://p.example", "scheme": "dcgm", "match": {"a": "b"}, "job_label": "j",
            "host_label": "h", "timeout_s": 2, "token_env": "T", "headers_env": {"X-A": "V"},
            "ca_file": "/c",
        },
        "notify": {"events": ["end"], "idle": {"for": "30m", "gpus": "any"},
                   "mail": {"events": ["end"], "by": "mail"}},
        "bad_nodes": {"days": 9, "hosts": ["n[1-3]"]},
        "advice": {"timeout": False, "idle-tail": {"x": 1, "y": [1, "a"], "z": True}},
        "costs": {"gpu_hour": 1.5, "currency": "EUR", "pue": 1.2, "co2_g_per_kwh": 4},
        "sources": {"p": {"url": "https://p.example/x", "read": "2026-11-23",
                          "edition": "2026-01-02", "gives": ["gpus"]}},
    },
    "workload": {
        "description": "d", "strategy": "ddp", "script": "s.py", "environment": "e",
        "launcher": "srun", "handles_stop_signal": True,
        "resources": {"gpus": 2, "cpus_per_task": 3, "mem_gb": 4, "time_min": 5},
        "sbatch": ["exclusive"],
        "parameters": {"n": {"type": "int", "default": 3, "help": "h", "choices": [3, 4],
                             "minimum": 1, "maximum": 9}},
        "weak_scaling": ["n"],
    },
    "rule": {
        "title": "t", "why": "w", "for_each": "job", "rests_on": "slurm", "variables": {"most": 1},
        "figures": {"much": "job.nodes"}, "when": "much > most",
        "levels": {"red": "much > 3", "yellow": "much > 2", "info": "much > 1"},
        "message": "m", "evidence": "e", "lost_gpu_hours": "1", "devices": {"gpu": "gpu.index > 1"},
        "since": "job.start", "until": "job.end", "action": "a", "action_sbatch": "b",
        "action_otherwise": "c", "sources": ["https://x"], "silences": ["timeout"],
        "enabled": False,
    },
    "config": {
        "notify": {
            "events": ["end"], "idle": "30m",
            "mail": {"events": ["end"], "by": "slurm", "to": "a@b.example"},
            "webhooks": {"w": {"events": ["end"], "body": "slack", "url": "https://h.example/x",
                               "token": "t", "ca_file": "/c"}},
            "commands": {"c": {"events": ["end"], "run": ["true"]}},
        },
        "bad_nodes": {"days": 9.5, "exclude": True},
    },
    "lock": {
        "format": 1,
        "collections": [
            {"name": "lab", "source": "git+https://h.example/x.git", "rev": "main",
             "commit": "0" * 40, "previous": "1" * 40, "owner": "alice",
             "hash": "sha256:" + "0" * 16, "files": {"hpckit.yaml": "0" * 16}}
        ],
    },
}  # fmt: skip
# Keys beside these, which do not go with one of them.
MORE: dict[str, tuple[tuple[tuple[str, ...], dict[str, Any]], ...]] = {
    "site": ((("prometheus",), {"url": "http://p.example", "token_file": "/t"}),
             (("notify", "idle"), "20m"), (("prometheus",), "http://p.example")),
    "workload": (((), {"description": "d", "strategy": "serial", "program": "octave"}),),
    "rule": (((), {"title": "t", "why": "w", "levels": {"red": "gpu.index > 1"}, "message": "m",
                   "evidence": "e", "for_each": "gpu",
                   "during": "now.gpu_utilization_percent < 9"}),
             (("devices",), {"node": "node.cores > 1"})),
    "config": ((("notify", "idle"), {"for": "30m", "gpus": "any"}),
               (("notify", "webhooks", "w"), {"url_env": "U", "token_env": "T"}),
               (("notify", "webhooks", "w"), {"url_file": "U", "token_file": "T"})),
}  # type: ignore[dict-item]  # fmt: skip
READ_AS = [kind for kind in KINDS if kind != "lock"]


def read(kind: str, document: Any, folder: Path) -> object:
    """Let the strict reader of a kind read a document, from a file."""
    return read_text(kind, json.dumps(document), folder)


def read_text(kind: str, text: str, folder: Path) -> object:
    name = {"collection": "hpckit.yaml", "workload": "workload.yaml"}.get(kind, "box.yaml")
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    found = Found(name="box.yaml", path=path, collection=BUILTIN)
    match kind:
        case "collection":
            return describe_shared(folder, "group")
        case "site":
            return read_site(path, (BUILTIN,))
        case "workload":
            (folder / "s.py").write_text("")
            return read_workload(found)
        case "rule":
            return read_rule(found)
        case "lock":
            return read_lock(path)
    read_rules(read_document(path, "your configuration", secret=True), of_site=False)
    return read_config(path)


def documents(kind: str) -> Iterator[Any]:
    """Yield the whole document of a kind, and those with what does not go with part of it."""
    yield copy.deepcopy(WHOLE[kind])
    for path, value in MORE.get(kind, ()):
        yield changed(WHOLE[kind], path, value)


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return copy.deepcopy(value)
    made = copy.deepcopy(document)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def refused(kind: str, document: Any, folder: Path) -> bool:
    try:
        read(kind, document, folder)
    except ConfigError:
        return True
    return False


def fits(kind: str, document: Any) -> bool:
    return bool(jsonschema.Draft7Validator(schema(kind)).is_valid(document))


@pytest.mark.parametrize("kind", KINDS)
def test_reader_and_schema_take_documents_with_every_key(kind: str, tmp_path: Path) -> None:
    jsonschema.Draft7Validator.check_schema(schema(kind))
    for document in documents(kind):
        read(kind, document, tmp_path)
        jsonschema.validate(document, schema(kind))


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all mappings of a schema's own keys, by what they are in a document."""
    if value.get("additionalProperties") is False:
        yield above
    for key, inner in value.get("properties", {}).items():
        yield from places(inner, (*above, key))
    for inner in value.get("anyOf", ()):
        yield from places(inner, above)
    for key, name in (("additionalProperties", "*"), ("items", "*")):
        if isinstance(value.get(key), dict):
            yield from places(value[key], (*above, name))


def keys_at(value: Any, place: tuple[Any, ...]) -> set[str]:
    """Return the keys that a schema has at a place."""
    if not place:
        found = set(value.get("properties", {}))
        return found.union(*(keys_at(inner, ()) for inner in value.get("anyOf", ())))
    first, rest = place[0], place[1:]
    inners = [*value.get("anyOf", ())]
    found = set().union(*(keys_at(inner, place) for inner in inners)) if inners else set()
    if first in value.get("properties", {}):
        found |= keys_at(value["properties"][first], rest)
    for key in ("additionalProperties", "items"):
        if first == "*" and isinstance(value.get(key), dict):
            found |= keys_at(value[key], rest)
    return found


# What the readers call the mappings at these places.
WHAT = {
    "a site": (), "gpus": ("gpus",), "gpus.types": ("gpus", "types"), "defaults": ("defaults",),
    "launch": ("launch",),
    "partition": ("partitions", "*"), "environment": ("environments", "*"), "costs": ("costs",),
    "source": ("sources", "*"), "prometheus": ("prometheus",), "notify": ("notify",),
    "mail": ("notify", "mail"), "idle": ("notify", "idle"), "webhook": ("notify", "webhooks", "*"),
    "command": ("notify", "commands", "*"), "your configuration": (), "a workload": (),
    "resources": ("resources",), "parameter": ("parameters", "*"), "an advice rule": (),
    "code": ("code",), "bad_nodes": ("bad_nodes",), "levels of rule": ("levels",),
    "devices of rule": ("devices",), "a collection": (),
}  # fmt: skip
# A site's reader knows them to refuse them with a reason of its own.
REFUSED = {("site", ("notify",)): {"webhooks", "commands"}}


@pytest.mark.parametrize("kind", READ_AS)
def test_reader_and_schema_know_the_same_keys(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a mapping was asked for, when it refuses all else, are the keys that it may have."""
    asked: dict[tuple[str, ...], set[str]] = {}
    refuse = Fields.refuse_unknown

    def told(fields: Fields) -> None:
        place = WHAT[re.sub(r" '.*", "", fields.what)]
        asked.setdefault(place, set()).update(fields.asked)
        refuse(fields)

    monkeypatch.setattr(Fields, "refuse_unknown", told)
    for document in documents(kind):
        read(kind, document, tmp_path)
    for place, keys in asked.items():
        keys -= REFUSED.get((kind, place), set())
    asked.pop(("gpus", "types"), None)  # names of one's own
    made = schema(kind)
    assert asked == {place: keys_at(made, place) for place in {*places(made)}}


def leaves(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        items = enumerate(value)  # type: ignore[assignment]
    for key, inner in items:
        yield from leaves(inner, (*above, key))


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_key_is_refused_by_both(kind: str, tmp_path: Path) -> None:
    whole, made = WHOLE[kind], schema(kind)
    own = {*places(made)}
    tried = 0
    for path in leaves(whole):
        inner = at(whole, path)
        place = tuple("*" if isinstance(key, int) else key for key in path)
        general = {place, *((*place[:-1], "*") for _ in place[:1])}
        if not isinstance(inner, dict) or not general & own:
            continue
        wrong = changed(whole, (*path, "zzz"), 1)
        assert not fits(kind, wrong), path
        assert refused(kind, wrong, tmp_path), path
        tried += 1
    assert tried >= len(own) - 2  # the same place twice: `idle` and `prometheus` are also texts


VALUES = ("", "x y", "zzz", True, -1, 0, 1.5, None, {"zzz": 1}, {}, [["a"]], [True], [], ["a"])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_no_schema_refuses_what_its_reader_takes(kind: str, tmp_path: Path) -> None:
    """And of values of another shape, a schema refuses what the reader refuses."""
    strict, loose = [], []
    validator = jsonschema.Draft7Validator(schema(kind))
    for path in leaves(WHOLE[kind]):
        for value in VALUES:
            document = changed(WHOLE[kind], path, value)
            no, fit = refused(kind, document, tmp_path), validator.is_valid(document)
            if not no and not fit:
                strict.append((path, value))
            # Names of one's own are a matter of more than their shape.
            shape = value == {"zzz": 1} and not isinstance(at(WHOLE[kind], path), dict)
            if no and fit and shape:
                loose.append((path, value))
    assert (strict, loose) == ([], [])


def plain(fields: Fields) -> Any:
    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(inner) for key, (inner, _) in value.items()}
        return [bare(inner) for inner, _ in value] if isinstance(value, list) else value

    return bare(fields.values)


SHIPPED = [
    (kind, path)
    for folder in (builtin_folder(), *(ROOT / "examples").iterdir())
    for kind, pattern in (
        ("site", "templates/sites/*.yaml"), ("rule", "templates/advice/*.yaml"),
        ("workload", "workloads/*/workload.yaml"), ("collection", "hpckit.yaml"),
    )
    for path in sorted(folder.glob(pattern))
]  # fmt: skip


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda it: getattr(it, "name", it))
def test_what_is_shipped_fits_its_schema(kind: str, path: Path) -> None:
    jsonschema.validate(plain(read_document(path, kind)), schema(kind))


def test_enough_is_shipped_for_that_to_mean_something() -> None:
    counts = {kind: sum(found == kind for found, _ in SHIPPED) for kind in READ_AS}
    assert counts["site"] > 18
    assert counts["rule"] > 20
    assert counts["workload"] > 5
    assert counts["collection"] >= 1


def test_a_lock_file_that_hpckit_wrote_fits(cli: Cli, here: Path, tmp_path: Path) -> None:
    make_repository(tmp_path / "lab")
    added = cli("collections", "add", f"git+file://{tmp_path}/lab@main", "--project")
    assert added.status == 0, added.err
    jsonschema.validate(json.loads((here / "hpckit.lock").read_text()), schema("lock"))


def test_the_command_prints_lists_and_writes_them(cli: Cli, here: Path) -> None:
    for kind in KINDS:
        assert json.loads(cli("templates", "schema", kind).out) == schema(kind)
    assert [row.split()[0] for row in cli("templates", "schema").out.splitlines()[1:]] == [*KINDS]
    wrong = cli("templates", "schema", "sites")
    assert (wrong.status, wrong.out) == (2, "")
    assert "no kind of file 'sites'. Did you mean 'site'?" in wrong.err
    first = cli("templates", "schema", "--write", str(here))
    assert len(first.out.splitlines()) == len(KINDS)
    assert cli("templates", "schema", "--write", str(here)).out == ""
    (here / ".hpckit" / "site.schema.json").write_text("{}")
    assert cli("templates", "schema", "site", "--write", str(here)).out.count("\n") == 1
    assert (here / ".hpckit" / "site.schema.json").read_text() == schema_text("site")
    missing = cli("templates", "schema", "--write", str(here / "nowhere"))
    assert missing.status == 3
    assert "cannot be written" in missing.err


def test_the_commands_of_the_page_of_collections_work(cli: Cli) -> None:
    rows = [row for block in blocks("docs/collections.md") if block.language == "sh"
            for row in block.text.splitlines() if " schema" in row]  # fmt: skip
    assert rows == ["hpckit templates schema", "hpckit templates schema site > site.schema.json"]
    for row in rows:
        assert cli(*row.partition(" >")[0].split()[1:]).status == 0


def test_schemas_are_not_written_through_a_link(cli: Cli, here: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (here / ".hpckit").symlink_to(tmp_path / "elsewhere")
    answer = cli("templates", "schema", "--write", str(here))
    assert (answer.status, answer.out) == (3, "")
    assert ".hpckit is a symbolic link" in answer.err
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def named_schema(path: Path) -> Path:
    """Return the file that a YAML file's comment names."""
    found = re.search(r"^# yaml-language-server: \$schema=(\S+)$", path.read_text(), re.MULTILINE)
    assert found, path
    return (path.parent / found[1]).resolve()


def test_files_of_a_new_collection_name_their_schemas_and_fit_them(cli: Cli, here: Path) -> None:
    assert cli("collections", "new", "lab").status == 0
    for kind, name in (
        ("collection", "hpckit.yaml"),
        ("site", "templates/sites/lab-cluster.yaml"),
        ("workload", "workloads/lab-hello/workload.yaml"),
    ):
        path = here / "lab" / name
        assert json.loads(named_schema(path).read_text()) == schema(kind)
        jsonschema.validate(plain(read_document(path, kind)), schema(kind))
    assert (here / "lab/.hpckit/rule.schema.json").read_text() == schema_text("rule")


def test_ci_and_hooks_of_a_new_collection_run_its_check(cli: Cli, here: Path) -> None:
    cli("collections", "new", "lab")
    gitlab = yaml.safe_load((here / "lab/.gitlab-ci.yml").read_text())
    assert gitlab["check"]["script"][-1] == "./check"
    github = yaml.safe_load((here / "lab/.github/workflows/check.yml").read_text())
    assert github["jobs"]["check"]["steps"][-1] == {"run": "./check"}
    assert gitlab["check"]["script"][0] == github["jobs"]["check"]["steps"][-2]["run"]
    (repo,) = yaml.safe_load((here / "lab/.pre-commit-config.yaml").read_text())["repos"]
    (ours,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for hook in (*repo["hooks"], ours):
        assert (hook["id"], hook["pass_filenames"]) == ("hpckit-lint", False)
        names = ("hpckit.yaml", "templates/sites/a.yaml", "workloads/x/run.py", "README.md",
                 "my/hpckit.yaml", "hpckit.yaml.old")  # fmt: skip
        assert [bool(re.search(hook["files"], name)) for name in names] == [
            True, True, True, False, False, False,
        ]  # fmt: skip
        assert hook["entry"] == "hpckit templates lint"


def test_lint_and_schema_tell_the_same_wrong_key(cli: Cli, here: Path) -> None:
    cli("collections", "new", "lab")
    path = here / "lab/templates/sites/lab-cluster.yaml"
    path.write_text(path.read_text() + "grafna: x\n")
    own = Collection(name="lab", path=here / "lab", origin="project")
    (found,) = lint_collection(own, (own, BUILTIN))
    assert str(found).startswith(f"{path}:14: unknown key 'grafna' in a site. Did you mean")
    document = plain(read_document(path, "site"))
    (error,) = jsonschema.Draft7Validator(schema("site")).iter_errors(document)
    assert "'grafna' was unexpected" in error.message
