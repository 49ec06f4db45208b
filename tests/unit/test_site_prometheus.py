"""`prometheus:` in a site's file."""

from pathlib import Path

import pytest

from hpckit.errors import ConfigError
from hpckit.sites import Site, read_site
from hpckit.sites.prometheus import Prometheus


def site(tmp_path: Path, text: str) -> Site:
    path = tmp_path / "lab.yaml"
    path.write_text(f"description: a lab\n{text}\n")
    return read_site(path)


def test_an_address_is_enough(tmp_path: Path) -> None:
    found = site(tmp_path, "prometheus: https://prom.example.org/prefix/")
    assert found.prometheus == Prometheus(url="https://prom.example.org/prefix")
    assert site(tmp_path, "").prometheus is None


def test_all_that_may_be_said(tmp_path: Path) -> None:
    text = """prometheus:
  url: http://stats:8480
  scheme: dcgm
  match: {cluster: tiger}
  job_label: slurm_job
  host_label: node
  timeout_s: 30
  token_file: ~/.prometheus-token
  headers_env: {X-Scope-OrgID: PROM_ORG}
  ca_file: /etc/ssl/lab.pem"""
    assert site(tmp_path, text).prometheus == Prometheus(
        url="http://stats:8480",
        scheme="dcgm",
        match={"cluster": "tiger"},
        job_label="slurm_job",
        host_label="node",
        timeout_s=30,
        token_file="~/.prometheus-token",
        headers_env={"X-Scope-OrgID": "PROM_ORG"},
        ca_file="/etc/ssl/lab.pem",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prometheus: ftp://host", "must be http://HOST:PORT or https://HOST"),
        ("prometheus: prom.example.org:9090", "must be http://HOST:PORT or https://HOST"),
        ("prometheus: http://", "must be http://HOST:PORT or https://HOST"),
        ("prometheus: http://host:99999", "not the address of a Prometheus: Port out of range"),
        ("prometheus: https://me:secret@host", "a password does not belong here"),
        ("prometheus: https://host/?q=1", "must end with its path"),
        ("prometheus: {scheme: dcgm}", "needs 'url:'"),
        ("prometheus: {url: 'http://h', scheme: zabbix}", "must be one of jobstats, dcgm, nvid"),
        ("prometheus: {url: 'http://h', token: abc}", "unknown key 'token'"),
        ("prometheus: {url: 'http://h', token_env: 'A-B'}", "letters, digits and underscores"),
        ("prometheus: {url: 'http://h', token_env: A, token_file: B}", "not both"),
        ("prometheus: {url: 'http://h', match: {'a}': b}}", "cannot be the name of a label"),
        ("prometheus: {url: 'http://h', headers_env: {'a b': X}}", "the name of a header"),
        ("prometheus: {url: 'http://h', headers_env: {X-Key: 's3cret!'}}", "name of a variable"),
        ("prometheus: {url: 'http://h', timeout_s: 0}", "must be at least 0.1"),
        ("prometheus: [1]", "must be a text"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"lab\.yaml:2") as found:
        site(tmp_path, text)
    assert said in str(found.value)
