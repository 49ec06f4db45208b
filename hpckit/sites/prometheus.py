"""What a site's file says of its Prometheus: where it is, and how it names jobs and nodes.

Secrets are never in the file: it names a variable of the environment, or a file of the user's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpckit.documents import Fields
from hpckit.errors import ConfigError

# Whose names its series have: `hpckit.sources.schemes`.
JOBSTATS, DCGM, NVIDIA_SMI = "jobstats", "dcgm", "nvidia-smi"
SCHEMES = (JOBSTATS, DCGM, NVIDIA_SMI)
_TIMEOUT_S = 10.0
# prometheus.io, "Data model": label names. A variable's name is one, too.
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# RFC 9110, 5.6.2: a token.
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prometheus:
    """A server to ask, or one that speaks as it does (Thanos, Mimir, VictoriaMetrics).

    Attributes:
        scheme: whose names the GPUs' series have; None: found out by asking.
        match: labels that all series of this cluster have, as where a server keeps several.
        job_label, host_label: where they are not those of the scheme.
        timeout_s: for how long one command may wait for it, all questions together.
        token_env, token_file: where the bearer token is.
        headers_env: more headers: name -> the variable that has its value.
        ca_file: certificates to trust, in place of the system's.
    """

    url: str
    scheme: str | None = None
    match: Mapping[str, str] = field(default_factory=dict)
    job_label: str | None = None
    host_label: str | None = None
    timeout_s: float = _TIMEOUT_S
    token_env: str | None = None
    token_file: str | None = None
    headers_env: Mapping[str, str] = field(default_factory=dict)
    ca_file: str | None = None


def read_prometheus(fields: Fields) -> Prometheus | None:
    """Take `prometheus:` of a site: an address, or a mapping with its `url`.

    Raises:
        ConfigError: something in it is wrong; with file and line.
    """
    key = "prometheus"
    if not fields.has(key) or not isinstance(fields.values[key][0], dict):
        url = fields.text(key)
        return Prometheus(url=_checked_url(url, fields, key)) if url else None
    rows = fields.mapping(key, key)
    found = Prometheus(
        url=_checked_url(rows.required_text("url"), rows, "url"),
        scheme=rows.choice("scheme", SCHEMES, SCHEMES[0]) if rows.has("scheme") else None,
        match=_names(rows, "match", _LABEL, "a label"),
        job_label=_name(rows, "job_label"),
        host_label=_name(rows, "host_label"),
        timeout_s=rows.number("timeout_s", minimum=0.1) or _TIMEOUT_S,
        token_env=_name(rows, "token_env"),
        token_file=rows.text("token_file"),
        headers_env=_names(rows, "headers_env", _HEADER, "a header", of=_LABEL),
        ca_file=rows.text("ca_file"),
    )
    if found.token_env and found.token_file:
        raise ConfigError("give 'token_env' or 'token_file', not both.", at=rows.at("token_file"))
    rows.refuse_unknown()
    return found


def _checked_url(url: str, fields: Fields, key: str) -> str:
    from urllib.parse import urlsplit  # noqa: PLC0415  # submit reads sites, too

    what = None
    try:
        parts = urlsplit(url)
        port_is_wrong = parts.port == 0
    except ValueError as error:
        what = str(error)
    else:
        if parts.scheme not in ("http", "https") or not parts.hostname or port_is_wrong:
            what = "it must be http://HOST:PORT or https://HOST"
        elif parts.username is not None or parts.password is not None:
            what = "a password does not belong here: use 'token_env', 'token_file' or 'headers_env'"
        elif parts.query or parts.fragment or not url.isascii() or not url.isprintable():
            what = "it must end with its path; '?', '#' and other letters have no place in it"
    if what:
        raise ConfigError(f"'{key}' is not the address of a Prometheus: {what}.", at=fields.at(key))
    return url.rstrip("/")


def _name(fields: Fields, key: str) -> str | None:
    name = fields.text(key)
    if name is not None and not _LABEL.fullmatch(name):
        raise ConfigError(
            f"'{key}' is {name!r}, must be a name of letters, digits and underscores.",
            at=fields.at(key),
        )
    return name


def _names(
    fields: Fields,
    key: str,
    pattern: re.Pattern[str],
    what: str,
    *,
    of: re.Pattern[str] | None = None,
) -> dict[str, str]:
    found = fields.text_mapping(key)
    for name, value in found.items():
        if not pattern.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be the name of {what}.", at=fields.at(key))
        if of and not of.fullmatch(value):
            raise ConfigError(
                f"{key} {name!r} is {value!r}, must be the name of a variable.", at=fields.at(key)
            )
    return found
