import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpckit.documents import Fields, nearest, read_document
from hpckit.errors import ConfigError, RequestError
from hpckit.owners import user_name
from hpckit.sites import read_site
from tests.conftest import examples

any_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150)
)


def document(tmp_path: Path, text: str) -> Fields:
    path = tmp_path / "some.yaml"
    path.write_text(text, encoding="utf-8")
    return read_document(path, "a thing")


def test_a_file_that_may_not_be_read_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, **_words: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("hpckit.documents.read_text", refuse)  # root may read all
    path = tmp_path / "config.yaml"
    with pytest.raises(ConfigError, match=r"denied\. Its owner can let you in"):  # whoever that is
        read_document(path, "settings")
    path.touch()
    with pytest.raises(ConfigError, match=r"Permission denied\. Let it be read \(chmod u\+r\)"):
        read_document(path, "settings")
    owner = user_name()
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
    with pytest.raises(ConfigError, match=rf"Its owner, {owner}, can let you in: chmod -R g\+rX"):
        read_document(path, "settings")


@pytest.mark.parametrize(
    "text",
    ["3.10", "1e3", "0x1F", "12:00:00", "2026-01-02", "007", "1_000", "'quoted'", "v1.2"],
)
def test_a_text_is_what_the_author_wrote(tmp_path: Path, text: str) -> None:
    fields = document(tmp_path, f"a: {text}\nb: [{text}, {text}]\nc: {text}\n")
    plain = text.strip("'")
    assert fields.text("a") == plain
    assert fields.texts("b") == (plain, plain)
    assert fields.texts("c") == (plain,)


def test_each_kind_of_value_is_read_as_itself(tmp_path: Path) -> None:
    fields = document(tmp_path, "n: 3\nf: true\ns: 1.5\nm: {x: 1}\nz: null\nl: [1, a, null]\n")
    assert fields.integer("n") == 3
    assert fields.flag("f") is True
    assert fields.scalar("s") == 1.5
    assert fields.text_mapping("m") == {"x": "1"}
    assert fields.text("z") is None
    assert fields.scalars("l") == (1, "a", None)
    fields.refuse_unknown()


def test_absent_keys_give_their_defaults(tmp_path: Path) -> None:
    fields = document(tmp_path, "")
    assert fields.text("a") is None
    assert fields.text("a", "b") == "b"
    assert fields.integer("a") is None
    assert fields.flag("a") is False
    assert fields.texts("a") == ()
    assert fields.mappings("a", "thing") == {}
    assert fields.choice("a", ("x", "y"), "y") == "y"


@pytest.mark.parametrize(
    ("take", "says"),
    [
        (
            lambda fields: fields.text("flag"),
            "2: 'flag' is True, must be a text. Put it in quotes: \"true\".",
        ),
        (lambda fields: fields.integer("flag"), "2: 'flag' is True, must be a whole number"),
        (lambda fields: fields.integer("list"), "3: 'list' is a list, must be a whole number"),
        (lambda fields: fields.integer("word"), "1: 'word' is 'w', must be a whole number"),
        (lambda fields: fields.flag("word"), "1: 'word' is 'w', must be true or false"),
        (lambda fields: fields.texts("list"), "3: 'list' holds a mapping"),
        (lambda fields: fields.scalars("list"), "3: 'list' must be a list of single values"),
        (lambda fields: fields.mapping("word", "x"), "1: 'word' is 'w', must be a mapping"),
        (lambda fields: fields.text("map"), "4: 'map' is a mapping, must be a text"),
        (lambda fields: fields.required_text("gone"), "1: a thing needs 'gone:'"),
        (lambda fields: fields.choice("word", ("x", "y"), "x"), "'w', must be one of x, y"),
        (lambda fields: fields.refuse_unknown(), "1: unknown key 'word' in a thing"),
    ],
)
def test_a_wrong_value_is_named_with_file_and_line(tmp_path: Path, take, says: str) -> None:
    fields = document(tmp_path, "word: w\nflag: true\nlist: [{}]\nmap: {}\n")
    with pytest.raises(ConfigError) as error:
        take(fields)
    assert says in str(error.value)
    assert "some.yaml:" in str(error.value)


def test_an_unknown_key_brings_the_nearest_known_one(tmp_path: Path) -> None:
    fields = document(tmp_path, "a: 1\nmodulse: 2\n")
    fields.text("a")
    fields.text("modules")
    with pytest.raises(ConfigError, match=r"some.yaml:2: unknown key 'modulse' .* 'modules'\?"):
        fields.refuse_unknown()


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "a: &x [*x]\n",
        "a: &x 1\nb: *x\n",
        "a: &a [1,1]\nb: &b [*a,*a]\nc: [*b,*b]\n",
        "a: 1\na: 2\n",
        "? [1]\n: 2\n? [1]\n: 3\n",
        "a: !!int x\n",
        "a: !!bool maybe\n",
        "a: !!python/object:os.system x\n",
        "a: 0x_\n",
        "a: b: c\n",
        "%YAML 9\n---\na: 1\n",
        "a: 1\n---\nb: 1\n",
        "- 1\n",
        "7\n",
        "a: \x07\n",
        "{" * 5000,
    ],
)
def test_what_is_not_plain_yaml_is_an_error_of_ours(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"some\.yaml"):
        document(tmp_path, text)


def test_unreadable_files_are_errors_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_document(tmp_path / "gone.yaml", "a thing")
    with pytest.raises(ConfigError, match="it is not a regular file"):
        read_document(tmp_path, "a thing")


# Words and signs that mean something in YAML, or in a site file.
pieces = st.sampled_from(
    ["a", ": ", ":", "- ", "\n", "  ", "{", "}", "[", "]", ",", "&x ", "*x", "!!int ", "!!bool ",
     "!!timestamp ", "!!float ", "!!set ", "!!omap ", "!!binary ", "!x ", "'", '"', "|", ">", "%",
     "#", "? ", "<<", "~", "1", "0x", "1:30", "2026-13-45", "true", "null", ".inf", "---\n",
     "description: d\n", "gpus: ", "partitions: ", "env: ", "setup: ", "\t", "\0", "é", "\u2028"]
)  # fmt: skip


@any_folder
@given(st.lists(pieces, max_size=25).map("".join) | st.text(max_size=60))
def test_random_yaml_is_a_site_or_an_error_of_ours(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(ConfigError):
        read_site(path)


@any_folder
@given(st.binary(max_size=80))
def test_random_bytes_are_a_site_or_an_error_of_ours(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some.yaml"
    path.write_bytes(content)
    with contextlib.suppress(ConfigError):
        read_site(path)


@pytest.mark.parametrize(
    ("word", "known", "says"),
    [
        ("alviss", ["alvis", "generic"], "Did you mean 'alvis'?"),
        ("A100", ["a100", "h100"], "Did you mean 'a100'?"),
        ("zzz", ["b", "a"], "Known: a, b."),
        ("zzz", [], "No names are known."),
    ],
)
def test_the_nearest_word_or_all_of_them_are_offered(word, known, says) -> None:
    assert nearest(word, known) == says


def test_config_errors_are_the_requests_fault() -> None:
    assert issubclass(ConfigError, RequestError)


def test_an_error_says_its_file_and_line_as_values(tmp_path: Path) -> None:
    path = tmp_path / "x:9: y.yaml"
    path.write_text("description: d\ntime: 1\n")
    with pytest.raises(ConfigError) as caught:
        read_site(path)
    assert caught.value.at is not None
    assert (caught.value.at.path, caught.value.at.line) == (path, 2)
    assert str(caught.value) == f"{path}:2: {caught.value.why}"
    with pytest.raises(ConfigError) as caught:
        read_site(tmp_path / "none.yaml")
    assert caught.value.at is not None
    assert (caught.value.at.path, caught.value.at.line) == (tmp_path / "none.yaml", 0)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("strategie: ddp", "needs 'strategy:'. It has 'strategie': is that meant?"),
        ("Strategy: ddp", "It has 'Strategy': is that meant?"),
        ("description: x\n1: y", "needs 'strategy:'."),
    ],
)
def test_a_missing_key_names_the_one_that_looks_like_it(
    tmp_path: Path, written: str, says: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(written + "\n")
    with pytest.raises(ConfigError) as error:
        read_document(path, "a thing").required_text("strategy")
    assert str(error.value).endswith(says)
