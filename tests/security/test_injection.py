"""No value breaks out of its place: bash and sbatch read the same commands and options with it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpckit.collections import Collection
from hpckit.environments import Environment, EnvironmentKind
from hpckit.errors import ConfigError, HpckitError, RequestError, TemplateError
from hpckit.job import Job, script
from hpckit.job.place import RunPlace
from hpckit.job.program import Program, ProgramKind
from hpckit.job.resolve import resolve
from hpckit.job.script import make_context, make_script
from hpckit.job_spec.sbatch_words import read_sbatch
from hpckit.job_spec.spec import JobSpec
from hpckit.render import find_template
from hpckit.render.quoting import shell_word
from hpckit.schedulers.base import Machine
from hpckit.sites import Site
from tests.conftest import examples
from tests.security.reading import commands, options
from tests.security.strings import PRINTABLE, UNPRINTABLE
from tests.unit.made import BUILTIN, collection

MARK = "harmless"
SITE = Site(name="box", description=MARK, contact=MARK, url=MARK)
# A group's template that prints what the built-in one does not.
LAB = """{% extends "slurm/base.sh.j2" %}
{% block header %}
{{ super() -}}
#SBATCH --comment={{ site.description }}
#SBATCH --wckey={{ run.name }} --mail-user={{ site.contact }}
{% endblock %}
{% block setup %}
{{ super() }}
echo {{ site.url }} {{ gpu_type }}{{ site.name }} {{ run.dir }}
export LAST={{ site.description ~ run.name }}
{% for word in [site.contact, site.url] %}
umask {{ word }} || echo {{ word }}
{% endfor %}
{% endblock %}
"""


@pytest.fixture(autouse=True)
def recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "own_python", lambda: ("recorder", "-E"))


def job(value: str, environment: Environment, machine: Machine | None = None, **site: Any) -> Job:
    """Give a plan in which every text that can be a value of somebody's is `value`."""
    spec = JobSpec(target="ddp", program=__file__, gpus=2, nodes=2, env="here", max_requeues=1)
    here = replace(SITE, environments={"here": environment}, **site)
    made = resolve(spec, here, None, python="recorder", machine=machine)
    one = made.environment.command("recorder")
    return replace(
        made,
        **dict.fromkeys(("name", "gpu_type"), value),
        options=dict.fromkeys(made.options, value),
        site=replace(
            made.site,
            **dict.fromkeys(("name", "description", "contact", "url"), value),
            env={"PLAIN": value, "OTHER": value},
            srun_args=(value, f"--bcast={value}"),
        ),
        program=Program(kind=ProgramKind.PYTHON, word=f"/code/{value}.py"),
        command=(*one, f"/code/{value}.py", value, f"--x={value}"),
    )


def place(value: str) -> RunPlace:
    folder = Path("/runs") / f"x{value}x" / "r1"
    return RunPlace(run_id="r1", dir=folder, cwd=f"/work/{value}", after=(f"afterok:{value}",))


def kind_of(word: EnvironmentKind, **more: str) -> Callable[[str], Environment]:
    def make(value: str) -> Environment:
        shared = {"load": (value, f"m/{value}"), "use": (f"/m/{value}",)}
        return Environment(
            name=value, kind=word, **shared, **{k: v + value for k, v in more.items()}
        )

    return make


ENVIRONMENTS: dict[str, Callable[[str], Environment]] = {
    "none": lambda value: Environment(name=value, kind=EnvironmentKind.NONE, python=value),
    "lmod": kind_of(EnvironmentKind.MODULES),
    "tmod": kind_of(EnvironmentKind.MODULES),
    "spack": kind_of(EnvironmentKind.MODULES),
    "venv": kind_of(EnvironmentKind.VENV, path="/venvs/"),
    "conda": kind_of(EnvironmentKind.CONDA, path=""),
    "conda init": kind_of(EnvironmentKind.CONDA, path="", conda_init="/conda/"),
    "spack environment": kind_of(EnvironmentKind.SPACK, path="/spack/"),
    "apptainer": kind_of(EnvironmentKind.APPTAINER, path="/images/"),
}


def script_of(value: str, case: str, where: tuple[Collection, ...], **more: Any) -> str:
    system = case if case in ("lmod", "tmod", "spack") else "lmod"
    made = job(value, ENVIRONMENTS[case](value), modules=system, **more)
    return make_script(made, place(value), where).text


def expected(said: Any, value: str) -> Any:
    if isinstance(said, str):
        # In the name of a log `%` is a pattern of Slurm's, so there it is doubled.
        doubled = value.replace("%", "%%") if said.startswith("--output=") else value
        return said.replace(MARK, doubled)
    return [expected(part, value) for part in said]


@pytest.fixture
def collections(tmp_path: Path) -> tuple[Collection, ...]:
    return (collection(tmp_path, "lab", {"templates/slurm/base.sh.j2": LAB}), BUILTIN)


@pytest.mark.long
@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_bash_and_sbatch_read_the_same_script_with_any_value(tmp_path, collections, case) -> None:
    if case == "none":
        values = [MARK, *PRINTABLE]
    else:  # every second one, to save time; what begins with a dash is refused, see below
        dashless = [value for value in PRINTABLE if not value.startswith("-")]
        values = [MARK, *dashless[list(ENVIRONMENTS).index(case) % 2 :: 2]]
    assert len(values) > 50
    texts = [script_of(value, case, collections) for value in values]
    (harmless, *read) = commands(texts, tmp_path)
    assert len(harmless[0]) > 5
    first = options(texts[0])
    assert f"--comment={MARK}" in first
    for value, text, found in zip(values[1:], texts[1:], read, strict=True):
        assert options(text) == expected(first, value), value
        assert found == expected(harmless, value), value


@pytest.mark.long
@pytest.mark.parametrize("case", ["lmod", "venv", "conda"])
@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(words=st.lists(st.sampled_from(PRINTABLE), min_size=2, max_size=4))
def test_strings_put_together_do_no_better(tmp_path_factory, case, words) -> None:
    value, folder = "x" + "".join(words), tmp_path_factory.mktemp("made")
    where = (collection(folder, "lab", {"templates/slurm/base.sh.j2": LAB}), BUILTIN)
    value = value.replace("//", "/")
    texts = [script_of(word, case, where) for word in (MARK, value)]
    harmless, found = commands(texts, folder)
    assert found == expected(harmless, value)
    assert options(texts[1]) == expected(options(texts[0]), value)


@pytest.mark.parametrize("value", ["a\n#SBATCH --uid=0", "\x1b[31m", "\u202e", "\x00"])
def test_control_characters_are_refused_wherever_they_would_be_printed(collections, value) -> None:
    harmless = job(MARK, ENVIRONMENTS["conda init"](MARK), modules="lmod")
    sites = ("description", "contact", "url")
    tried = [
        *(replace(harmless, **{name: value}) for name in ("name", "gpu_type")),
        *(
            replace(harmless, options={**harmless.options, name: value})
            for name in harmless.options
        ),
    ]
    tried += [replace(harmless, site=replace(harmless.site, **{name: value})) for name in sites]
    tried += [
        replace(harmless, site=replace(harmless.site, env={"PLAIN": value})),
        replace(harmless, site=replace(harmless.site, srun_args=(value,))),
        *(
            replace(harmless, environment=replace(harmless.environment, **{name: words}))
            for name, words in {"load": (value,), "use": (value,), "path": value,
                                "conda_init": value}.items()
        ),
    ]  # fmt: skip
    good = place(MARK)
    runs = [(made, good) for made in tried]
    runs += [(harmless, replace(good, cwd=value)), (harmless, replace(good, after=(value,)))]
    if "\x00" not in value:
        runs.append((harmless, replace(good, dir=Path("/runs") / value)))
    for made, where in runs:
        with pytest.raises(TemplateError, match="control character") as error:
            make_script(made, where, collections)
        assert len(str(error.value).splitlines()) == 1
        assert str(error.value).isprintable()


@pytest.mark.parametrize("value", UNPRINTABLE)
def test_every_control_character_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        shell_word(f"a{value}b")


@pytest.mark.parametrize("value", UNPRINTABLE)
def test_control_characters_in_comments_are_spelt_out(collections, value) -> None:
    harmless = job(MARK, ENVIRONMENTS["none"](MARK))
    command = ("python", value, f"--x={value}")
    program = Program(kind=ProgramKind.PYTHON, word=f"/code/x{value}.py")
    there = replace(harmless, program=program, command=command)
    text = make_script(there, place(MARK), collections).text
    assert f"--comment={MARK}" in options(text)
    assert all(line.isprintable() for line in text.splitlines())
    assert "uid" not in " ".join(options(text))


def test_a_value_of_sbatch_is_one_option_whatever_it_holds(collections) -> None:
    made = job(MARK, ENVIRONMENTS["none"](MARK))
    first = options(make_script(replace(made, sbatch=("extra=x",)), place(MARK), collections).text)
    refused = []
    for value in PRINTABLE:
        try:
            read_sbatch(f"extra={value}")
        except RequestError:
            refused.append(value)
            continue
        here = replace(made, sbatch=(f"extra={value}",))
        said = options(make_script(here, place(MARK), collections).text)
        assert said == [f"--extra={value}" if one == "--extra=x" else one for one in first], value
    assert refused == [" ", "\t", "a\tb"]


WORDS = ("partition", "account", "qos", "constraint", "reservation", "exclude", "gpu_type", "name")


@pytest.mark.parametrize("field", WORDS)
def test_what_slurm_has_no_use_for_is_refused_at_the_door(field: str) -> None:
    taken = set()
    for value in [*PRINTABLE, *UNPRINTABLE]:
        try:
            JobSpec(target="ddp", **{field: value})
        except RequestError as error:
            assert str(error).isprintable()  # noqa: PT017  # only some are refused
        else:
            taken.add(value)
    assert not taken & set(UNPRINTABLE)
    if field != "name":
        assert not any(letter in value for value in taken for letter in " '\"`$;#\\<>!~?{}")
    if field == "gpu_type":  # `--gpus a:1,b:1:2` would ask for a second thing
        assert not any(letter in value for value in taken for letter in ",:=")


@pytest.mark.parametrize("value", ["-x", "--help"])
@pytest.mark.parametrize("field", ["load", "use", "path", "conda_init"])
def test_a_name_that_reads_as_an_option_is_refused(field: str, value: str) -> None:
    given_ = {field: (value,) if field in ("load", "use") else value}
    with pytest.raises(ConfigError, match="begins with a dash"):
        Environment(name="e", kind=EnvironmentKind.CONDA, **given_)


def test_values_of_arrays_never_enter_the_script() -> None:
    """What a template is given is the same whatever the values are, so the script is."""

    def context(word: str) -> dict[str, Any]:
        array = (f"key={word.replace(',', '')}x",)
        spec = JobSpec(target="ddp", program=__file__, gpus=0, array=array, name=MARK)
        return make_context(resolve(spec, SITE, None, python="recorder"), place(MARK))

    for value in [*PRINTABLE, *UNPRINTABLE]:
        if "\0" in value:  # no word can hold it
            with pytest.raises(RequestError, match="contains a NUL byte"):
                context(value)
        else:
            assert context(value) == context(MARK)


@pytest.mark.parametrize("option", ["--gpus", "--nodes", "--time", "--mem-gb", "--parallel"])
@pytest.mark.parametrize("value", ["²", "1²", "x:²", "1;id", "$(id)", "1\n2", "-1", "１e9", "NaN"])
def test_numbers_are_numbers(cli, here, option: str, value: str) -> None:
    (here / "train.py").touch()
    said = cli("submit", "serial", "train.py", f"{option}={value}", "--dry-run")
    assert said.status == 2, said.out
    assert said.out == ""


@pytest.mark.parametrize("word", ["²", "12;id", "12,singleton", "-1", "afterok:12?afterany:1"])
def test_a_dependency_is_a_number_or_a_run(cli, here, word: str) -> None:
    (here / "train.py").touch()
    said = cli("submit", "serial", "train.py", f"--after={word}", "--dry-run")
    assert said.status == 2, said.out


@pytest.mark.parametrize("value", [*PRINTABLE, *UNPRINTABLE])
def test_an_error_of_ours_never_leaves_python(value: str) -> None:
    """What a colleague wrote in run.json, or a user typed, is refused by us or taken."""
    for name in ("target", "program", "template", "env", "launcher"):
        spec = JobSpec(target="ddp", program=__file__, gpus=0)
        try:
            made = resolve(replace(spec, **{name: value}), SITE, None, python="python")
            find_template(made.template, (BUILTIN,))
        except HpckitError as error:
            assert len(str(error).splitlines()) == 1, error  # noqa: PT017  # most are refused
