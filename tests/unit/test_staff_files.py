"""The files for staff and for citing say what the package says."""

import re
import subprocess
from typing import Any

import yaml

from hpckit.version import DISTRIBUTION, __version__
from tests.pages import ROOT
from tests.patience import LONG_S
from tests.unit.test_constraints import plain


def easyconfig() -> dict[str, Any]:
    """Read the easyconfig as EasyBuild does: it is Python, and SYSTEM a constant of EasyBuild's."""
    text = (ROOT / "examples" / "staff" / "hpckit.eb").read_text()
    found: dict[str, Any] = {"SYSTEM": {"name": "system", "version": "system"}}
    exec(compile(text, "hpckit.eb", "exec"), found)
    return found


def test_the_easyconfig_installs_what_is_pinned() -> None:
    config = easyconfig()
    assert (config["name"], config["version"]) == ("hpckit", __version__)
    own, *others = config["sources"]
    assert own.startswith(f"{DISTRIBUTION.replace('-', '_')}-%(version)s-")
    pins = (ROOT / "constraints.txt").read_text()
    pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", pins, re.M))
    assert {plain(name.split("-")[0]): name.split("-")[1] for name in others} == pinned
    assert config["checksums"][0] is None  # hpckit's own wheel is made by whoever installs it
    for name, given in zip(others, config["checksums"][1:], strict=True):
        rows = pins.partition(f"{plain(name.split('-')[0])}==")[2]
        assert f"sha256:{given}" in re.split(r"\n(?=\S)", rows, maxsplit=1)[0], name


def test_the_lines_to_type_name_this_version() -> None:
    text = (ROOT / "docs" / "install-for-all.md").read_text()
    named = re.findall(r"(?:VERSION=|/apps/hpckit/)(\d[\w.]*)", text)
    assert len(named) >= 3
    assert {*named} == {__version__}


def test_the_app_of_open_ondemand_holds_together() -> None:
    app = ROOT / "examples" / "staff" / "ondemand"
    form = yaml.safe_load((app / "form.yml").read_text())
    assert yaml.safe_load((app / "manifest.yml").read_text())["role"] == "batch_connect"
    asked = {name for name in form["form"] if not name.startswith("bc_")}
    assert asked == form["attributes"].keys()
    texts = {path.name: path.read_text() for path in app.rglob("*.erb")}
    used = re.findall(r"context\.(\w+)", "".join(texts.values()))
    used += re.findall(r"(\w+)\.to_i", texts["submit.yml.erb"])
    assert set(used) == asked
    assert ".shellescape %>" in texts["script.sh.erb"]  # what a user typed is one word
    for name in ("before.sh.erb", "script.sh.erb"):
        shell = re.sub(r"<%=.*?%>", "x", texts[name])
        subprocess.run(["bash", "-n"], input=shell, text=True, check=True, timeout=LONG_S)
    submit = re.sub(r"<%-.*?-%>\n", "", texts["submit.yml.erb"])
    assert yaml.safe_load(re.sub(r"<%=.*?%>", "1", submit))["script"]["native"] == [
        "--nodes=1",
        "--gpus-per-node=1",
    ]


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    # What the format's schema (1.2.0) needs; cffconvert --validate asks it.
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == "MIT"
    assert all({"name"} == author.keys() for author in citation["authors"])
