from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.collections import builtin_folder, content_hash, find_all, search_path
from hpckit.collections import search as places
from hpckit.collections.collection import describe
from hpckit.errors import ConfigError
from tests.conftest import Answer, write_files


def origins() -> list[tuple[str, str]]:
    return [(row.name, row.origin) for row in search_path()]


def test_with_nothing_else_there_is_the_built_in_collection(here: Path) -> None:
    assert origins() == [("built-in", "built-in")]
    assert (builtin_folder() / "templates" / "slurm" / "base.sh.j2").is_file()


def test_the_search_goes_from_the_project_to_the_built_in(here: Path, monkeypatch) -> None:
    write_files(here.parent, {"work/templates/x.j2": "", "home/.config/hpckit/templates/x.j2": "",
                              "labs/one/workloads/w/workload.yaml": "", "labs/two/hpckit.yaml":
                              "name: second\n"})  # fmt: skip
    labs = here.parent / "labs"
    monkeypatch.setenv("HPCKIT_COLLECTIONS", f"{labs / 'one'}::{labs / 'two'}:")
    assert origins() == [
        ("project", "project"),
        ("user", "user"),
        ("one", "group"),
        ("second", "group"),
        ("built-in", "built-in"),
    ]


def test_the_users_folder_follows_xdg(here: Path, monkeypatch) -> None:
    write_files(here.parent, {"xdg/hpckit/templates/x.j2": "", "home/.config/hpckit/templates/y.j2":
                              ""})  # fmt: skip
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here.parent / "xdg"))
    assert next(row.path for row in search_path()) == here.parent / "xdg" / "hpckit"


def test_a_folder_named_twice_is_searched_once(here: Path, monkeypatch) -> None:
    write_files(here, {"templates/x.j2": ""})
    (here.parent / "link").symlink_to(here)
    monkeypatch.setenv("HPCKIT_COLLECTIONS", f"{here}:{here.parent / 'link'}")
    assert origins() == [("project", "project"), ("built-in", "built-in")]


def test_the_checkout_itself_is_the_built_in_and_no_project(here: Path, monkeypatch) -> None:
    monkeypatch.chdir(builtin_folder())
    assert origins() == [("built-in", "built-in")]


def test_a_group_may_describe_itself(here: Path, monkeypatch) -> None:
    text = "name: lab\ndescription: d\ncontact: c\nurl: u\nhpckit: '>=0.1'\n"
    write_files(here, {"g/hpckit.yaml": text})
    monkeypatch.setenv("HPCKIT_COLLECTIONS", "g")
    lab = search_path()[0]
    assert (lab.name, lab.description, lab.contact, lab.url) == ("lab", "d", "c", "u")
    assert lab.label() == "lab (group)"
    assert search_path()[-1].label() == "built-in"


@pytest.mark.parametrize(
    ("needed", "why"),
    [
        (">=0.1, <0.2", "must be the oldest version that will do"),
        ("==0.0.5", "must be the oldest version that will do"),
        ("soon", "must be the oldest version that will do"),
        (">=9.1", "needs hpckit >=9.1"),
    ],
)
def test_the_version_that_a_collection_needs(here: Path, needed: str, why: str) -> None:
    write_files(here, {"hpckit.yaml": f"hpckit: '{needed}'\n"})
    with pytest.raises(ConfigError, match=why):
        describe(here, "project")
    for fine in (">=0.0.1", ">= 0.1", "0.1"):
        write_files(here, {"hpckit.yaml": f"hpckit: '{fine}'\n"})
        describe(here, "project")


def test_a_named_folder_must_be_a_collection(here: Path, monkeypatch) -> None:
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(here))
    with pytest.raises(ConfigError, match=r"work' of HPCKIT_COLLECTIONS is not a folder"):
        search_path()


def test_a_named_folder_that_is_gone_stops_only_what_reads_collections(
    here: Path, cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(here / "gone"))
    for words in ("workloads list", "submit serial true --dry-run", "jobs"):
        answer = cli(*words.split())
        assert (answer.status, "of HPCKIT_COLLECTIONS is not a folder" in answer.err) == (2, True)
    monkeypatch.setenv("HPCKIT_RUNS", str(here / "runs"))  # no site is asked for it
    assert cli("jobs").status == 0
    for words in ("status 1", "logs 1"):
        assert "HPCKIT_COLLECTIONS" not in cli(*words.split()).err


def test_a_wrong_manifest_for_all_users_stops_no_command(here: Path) -> None:
    write_files(here, {"etc/hpckit.yaml": "nmae: x\n", "etc/templates/sites/a.yaml": ""})
    [found] = places._site_wide(here / "etc", None)
    assert (found.name, found.state) == ("site-wide", "broken")
    assert "hpckit.yaml:1: unknown key 'nmae'" in found.why
    write_files(here, {"etc/hpckit.yaml": "name: x\n"})
    assert [row.label() for row in places._site_wide(here / "etc", None)] == ["x (site-wide)"]


def test_the_first_file_wins_and_says_what_it_shadows(here: Path, monkeypatch) -> None:
    write_files(here, {"templates/slurm/base.sh.j2": "", "g/templates/slurm/base.sh.j2": "",
                       "g/templates/slurm/only.sh.j2": ""})  # fmt: skip
    monkeypatch.setenv("HPCKIT_COLLECTIONS", "g")
    found = find_all("**/*.j2", "templates", search_path())
    base = found["slurm/base.sh.j2"]
    assert base.collection.name == "project"
    assert [row.name for row in base.shadows] == ["g", "built-in"]
    assert found["slurm/only.sh.j2"].shadows == ()


def test_listings_show_where_things_come_from_and_what_they_shadow(
    here: Path, cli: Callable[..., Answer]
) -> None:
    files = {"templates/slurm/base.sh.j2": "#!/bin/bash\n", "templates/sites/generic.yaml":
             "description: mine\n"}  # fmt: skip
    write_files(here, files)
    line = next(row for row in cli("templates", "list").out.splitlines() if "base" in row)
    assert line.split() == ["slurm/base.sh.j2", "project", "built-in"]
    line = next(row for row in cli("sites", "list").out.splitlines() if "generic" in row)
    assert line.split() == ["generic", "*", "project", "built-in", "mine"]


def test_a_hash_is_of_names_and_bytes_and_not_of_caches(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/x.py": "1", "b/x.py": "1", "c/y.py": "1"})
    first = content_hash(tmp_path / "a")
    assert first.startswith("sha256:")
    write_files(tmp_path, {"a/__pycache__/x.pyc": "2"})
    assert content_hash(tmp_path / "a") == first
    assert content_hash(tmp_path / "c") != first
    write_files(tmp_path, {"a/x.py": "2"})
    assert content_hash(tmp_path / "a") != first


def test_the_folder_shipped_in_a_wheel_comes_first(tmp_path: Path, monkeypatch) -> None:
    write_files(tmp_path, {"hpckit/collections/search.py": "", "hpckit/builtin": None})
    monkeypatch.setattr(places, "__file__", str(tmp_path / "hpckit" / "collections" / "search.py"))
    assert builtin_folder() == tmp_path / "hpckit" / "builtin"


def test_a_folder_deeper_than_any_is_one_error(tmp_path: Path) -> None:
    """Also where it is a link; what is deep is named."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "a").write_text("x")
    (tmp_path / "link").symlink_to("lab")
    first = content_hash(tmp_path / "link")
    (tmp_path / "lab" / "a").write_text("y")
    assert content_hash(tmp_path / "link") != first
    deep = tmp_path / "lab" / "/".join("d" * 300)
    deep.mkdir(parents=True)
    with pytest.raises(ConfigError, match="folders deep"):
        content_hash(tmp_path / "lab")
