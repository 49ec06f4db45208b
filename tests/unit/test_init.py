"""`hpckit init` and `sites detect` against programs that say what a cluster would."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from hpckit.detect import login_node
from hpckit.sites import read_site
from tests.unit.detected import PROGRAMS, Cluster, sections


@pytest.fixture
def newest(here: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("hpckit.owners.user_name", lambda: "root")
    return Cluster(here.parent / "bin", "25.05")


def site_file(here: Path, name: str = "newest") -> Path:
    return here.parent / "home" / ".config" / "hpckit" / "templates" / "sites" / f"{name}.yaml"


def test_init_writes_a_site_that_sites_show(here: Path, newest: Cluster, cli) -> None:
    done = cli("init")
    assert (done.status, done.out) == (0, f"{site_file(here)}: written\n")
    shown = json.loads(cli("sites", "show", "newest", "--json").out)
    assert (shown["partition"], shown["mpi"], shown["gpu_types"]) == ("h200", "pmix", {"h200": 8})
    assert shown["partitions"]["h200"]["max_time_min"] == 10080


def test_init_submits_nothing(newest: Cluster, cli) -> None:
    cli("init")
    assert {call.split()[0] for call in newest.calls} == set(PROGRAMS)
    assert [call for call in newest.calls if call.startswith("srun")] == ["srun --mpi=list"]


def test_again_it_changes_nothing(here: Path, newest: Cluster, cli) -> None:
    cli("init")
    before = (site_file(here).read_bytes(), site_file(here).stat().st_mtime_ns)
    again = cli("init")
    assert (again.status, again.out) == (0, f"{site_file(here)}: nothing to change\n")
    assert (site_file(here).read_bytes(), site_file(here).stat().st_mtime_ns) == before
    assert [path.name for path in site_file(here).parent.iterdir()] == ["newest.yaml"]


def test_edits_stay_while_the_cluster_is_the_same(here: Path, newest: Cluster, cli) -> None:
    cli("init")
    edited = site_file(here).read_text() + "setup: [ulimit -l unlimited]\n"
    site_file(here).write_text(edited)
    again = cli("init")
    assert (again.status, "your own changes stay" in again.out) == (0, True)
    assert site_file(here).read_text() == edited


def shorter(newest: Cluster) -> None:
    text = sections("25.05")["partitions"].replace("MaxTime=7-00:00:00", "MaxTime=1-00:00:00")
    newest.says("25.05", partitions=text)


def test_a_changed_cluster_changes_the_file(here: Path, newest: Cluster, cli) -> None:
    cli("init")
    shorter(newest)
    again = cli("init")
    assert again.status == 0
    assert '-    max_time: "7-00:00:00"' in again.out
    assert '+    max_time: "1-00:00:00"' in again.out
    assert read_site(site_file(here)).partitions["h200"].max_time_min == 1440


@pytest.mark.parametrize("why", ["edited after", "did not write this file"])
def test_what_is_not_its_own_init_shows_and_leaves(
    why: str, here: Path, newest: Cluster, cli
) -> None:
    cli("init")
    old = site_file(here).read_text()
    old = old + "url: https://ours\n" if "edited" in why else "description: mine\n"
    site_file(here).write_text(old)
    shorter(newest)
    again = cli("init")
    assert again.status == 1
    assert '+    max_time: "1-00:00:00"' in again.out
    assert why in again.err
    assert "--force" in again.err
    assert site_file(here).read_text() == old
    assert cli("init", "--force").status == 0
    assert read_site(site_file(here)).partitions["h200"].max_time_min == 1440
    assert site_file(here).with_name("newest.yaml.old").read_text() == old


def test_a_program_that_hangs_costs_its_time_and_no_value(
    here: Path, newest: Cluster, cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("init")
    whole = site_file(here).read_text()
    newest.hangs("sacctmgr")
    ask = login_node.ask  # only for that one is the time short: a loaded machine makes others slow

    def patient(argv: tuple[str, ...], *, timeout_s: float) -> object:
        return ask(argv, timeout_s=timeout_s if argv[0] == "sacctmgr" else 60)

    monkeypatch.setattr(login_node, "ask", patient)
    begun = time.monotonic()
    again = cli("init", "--timeout", "0.3")
    assert time.monotonic() - begun < 250  # not the 300 s that it hangs, twice
    assert again.status == 1
    assert re.search(r"not known: sacctmgr .*: 'sacctmgr' gave no answer within 0.3 s", again.err)
    assert "the file would lose values" in again.err
    assert site_file(here).read_text() == whole
    assert cli("init", "--timeout", "0.3", "--name", "other").status == 0
    page = site_file(here, "other").read_text()
    assert "# NOT KNOWN: sacctmgr -nP show assoc user=root" in page
    assert read_site(site_file(here, "other")).defaults.get("account") is None


def test_a_preview_writes_nothing(here: Path, newest: Cluster, cli) -> None:
    assert cli("init", "--dry-run").out.startswith("# hpckit init, sha256:")
    assert not site_file(here).exists()


def test_a_preview_as_json_is_one_document(here: Path, newest: Cluster, cli) -> None:
    done = cli("init", "--dry-run", "--json")
    record = json.loads(done.out)
    assert (record["site"], record["path"]) == ("newest", str(site_file(here)))
    assert record["page"] == cli("init", "--dry-run").out
    assert not site_file(here).exists()


def test_a_preview_refuses_the_names_that_init_refuses(here: Path, newest: Cluster, cli) -> None:
    for preview in ((), ("--dry-run",)):
        done = cli("init", "--name", "a b", *preview)
        assert (done.status, done.out) == (2, "")
        assert "'a b' is not a valid site name" in done.err


def test_a_pipe_in_the_sites_place_is_not_waited_for(here: Path, newest: Cluster, cli) -> None:
    site_file(here).parent.mkdir(parents=True)
    os.mkfifo(site_file(here))
    done = cli("init")
    assert (done.status, "newest.yaml: cannot be read" in done.err) == (3, True)


def test_where_nothing_can_be_written_it_says_how_to_see_the_file(
    here: Path, newest: Cluster, cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("hpckit.detect.site_file.make_folder", refuse)
    said = cli("init")
    assert said.status == 3
    assert "Permission denied. To print what it would say: hpckit init --dry-run" in said.err


def test_json_is_one_document(here: Path, newest: Cluster, cli) -> None:
    record = json.loads(cli("init", "--json").out)
    assert (record["site"], record["outcome"]) == ("newest", "written")
    assert record["path"] == str(site_file(here))


def test_without_slurm_there_is_nothing_to_find(here: Path, cli, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(here.parent / "bin"))
    done = cli("init")
    assert done.status == 3
    assert "No program of Slurm answers here" in done.err
    assert ". Log in to the cluster; or copy" in done.err
    assert ".. " not in done.err
    assert cli("sites", "detect").status == 3
    assert not site_file(here).parent.exists()


@pytest.mark.parametrize("name", ["../x", "a b", "generic", "", "-x", ".x"])
def test_a_site_needs_a_name_that_is_one(name: str, here: Path, newest: Cluster, cli) -> None:
    done = cli("init", f"--name={name}")
    # An empty one is none given: then it is Slurm's.
    assert done.status == (2 if name else 0)
    assert list(here.parent.glob("**/x.yaml")) == []


def test_a_cluster_whose_name_is_no_name_asks_for_one(newest: Cluster, cli) -> None:
    newest.says("25.05", config="ClusterName = ../../x\n")
    assert "give another name with --name" in cli("init").err
    newest.says("25.05", config="nothing\n")
    done = cli("init")
    assert (done.status, "give --name" in done.err) == (3, True)


def test_detect_says_all_it_knows_as_json(newest: Cluster, cli) -> None:
    newest.says("21.08")
    record = json.loads(cli("sites", "detect", "--json").out)
    assert (record["name"], record["slurm_version"]) == ("mixed", "21.08.8")
    assert record["accounts"] == ["phys", "chem"]
    assert record["gpu_types"] == {"a100": 4, "t4": 8}
    assert record["mpi"] == {
        "kinds": ["none", "pmix_v3", "pmix", "pmi2"],
        "default": None,
        "chosen": "pmix",
    }
    assert record["partitions"][0]["accounts"] == ["chem", "phys"]
    assert record["unknown"] == []
    newest.says("20.11")
    record = json.loads(cli("sites", "detect", "--json").out)
    assert (record["accounts"], record["accounting"]) == (None, False)
    assert record["unknown"][-1]["why"].endswith("only squeue can answer.")


def test_detect_writes_nothing(here: Path, newest: Cluster, cli) -> None:
    assert "description:" in cli("sites", "detect").out
    assert not site_file(here).parent.exists()


def test_init_says_when_another_site_is_taken_here(newest: Cluster, cli, monkeypatch) -> None:
    monkeypatch.setenv("HPCKIT_SITE", "alvis")
    assert "uses site 'alvis': give --site newest" in cli("init").err
