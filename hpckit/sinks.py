"""Who is told of a job's events: `notify:` in the user's own config.yaml, or in a site's file.

The user's file may name webhooks and commands; a site's, which others write, only mail to the user.
Addresses of webhooks are secrets: they are read where a message is sent, and are in no other file.
"""

import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hpckit.documents import Fields, read_document
from hpckit.errors import ConfigError
from hpckit.files import reason
from hpckit.frozen import frozen
from hpckit.paths import CONFIG, config_folder, is_there, refuse_foreign
from hpckit.units import parse_seconds

CONFIG_FILE = "config.yaml"
START, RESTART, ERROR, FAILURE, END, IDLE = (
    "start", "restart", "error", "failure", "end", "idle",
)  # fmt: skip
EVENTS = (START, RESTART, ERROR, FAILURE, END, IDLE)
USUAL = (END, IDLE)
SLURM, PROGRAM = "slurm", "mail"
# What the body of a webhook is: `hpckit.notify.event` makes them.
BODIES = ("json", "slack", "teams", "discord", "ntfy")
_IDLE_S = 30 * 60.0
# How long a job script waits for the process that tells, should that one hang.
SCRIPT_PATIENCE_S = 10
ALL, ANY = "all", "any"
# As strict as it may be: it stands in an `#SBATCH` line, and in the argv of `mail`.
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._%+-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Slurm's words, sbatch(1), --mail-type; it knows nothing of errors in logs and of idle GPUs.
_MAIL_TYPES = {START: "BEGIN", RESTART: "REQUEUE", FAILURE: "FAIL", END: "END"}


@frozen(kw_only=True)
class Webhook:
    """An address that gets a POST: itself, or the variable or file that has it; so a token."""

    name: str
    events: tuple[str, ...]
    body: str = BODIES[0]
    url: str | None = None
    url_env: str | None = None
    url_file: str | None = None
    token: str | None = None
    token_env: str | None = None
    token_file: str | None = None
    ca_file: str | None = None


@frozen(kw_only=True)
class Command:
    """A program of the user's: its argv; it gets the event as JSON, and as variables."""

    name: str
    events: tuple[str, ...]
    argv: tuple[str, ...]


@frozen(kw_only=True)
class Mail:
    """Mail to the user, by Slurm or by the program `mail`; `to` None is the user's own name."""

    events: tuple[str, ...]
    by: str = SLURM
    to: str | None = None
    name: str = "mail"


Sink = Webhook | Command | Mail


@frozen(kw_only=True)
class Notify:
    """All of a `notify:`.

    Attributes:
        idle_s: a job is idle whose GPUs (`all`, or `any`) ran nothing for so long.
        of_site: it is a site's, not the user's own.
    """

    sinks: tuple[Sink, ...] = ()
    idle_s: float = _IDLE_S
    idle_gpus: str = ALL
    of_site: bool = False

    @property
    def mail_by_slurm(self) -> Mail | None:
        """The mail that Slurm sends, by options of sbatch."""
        rows = (row for row in self.sinks if isinstance(row, Mail) and row.by == SLURM)
        return next(rows, None)

    @property
    def public(self) -> "Notify":
        """The same without secrets: what a submission needs."""
        rows = (
            replace(row, url=None, token=None) if isinstance(row, Webhook) else row
            for row in self.sinks
        )
        return replace(self, sinks=tuple(rows))

    @property
    def told_in_job(self) -> tuple[Sink, ...]:
        """The sinks that a process in the job serves."""
        return tuple(row for row in self.sinks if row is not self.mail_by_slurm)


def mail_options(mail: Mail) -> tuple[str, ...]:
    """Return the options of sbatch for which Slurm sends mail; none where it knows no event."""
    kinds = [_MAIL_TYPES[event] for event in mail.events if event in _MAIL_TYPES]
    if not kinds:
        return ()
    to = (f"mail-user={mail.to}",) if mail.to else ()
    return (f"mail-type={','.join(kinds)}", *to)


def find_notify(of_site: "Notify | None", environ: Mapping[str, str] = os.environ) -> Notify | None:
    """Return what the user's own file says; where it says nothing, the site's.

    Raises:
        ConfigError: the user's file is wrong, or others could read or write it.
    """
    folder = config_folder(environ)
    if not is_there(folder / CONFIG_FILE):
        return of_site
    refuse_foreign(folder, CONFIG)
    own = read_config(folder / CONFIG_FILE)
    return of_site if own is None else own


def read_config(path: Path) -> Notify | None:
    """Read the user's own file; None where it has no `notify:`.

    Raises:
        ConfigError: it is wrong, or others could read or write it.
    """
    refuse_open(path)
    fields = read_document(path, "your configuration", secret=True)
    found = read_notify(fields, trusted=True)
    fields.asked.add("bad_nodes")  # `hpckit.sites.node_rules` reads it
    fields.refuse_unknown()
    return found


def refuse_open(path: Path) -> None:
    """Refuse a file as ssh refuses a key: its addresses let anybody write to the user's chat."""
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot be read: {reason(error)}.", at=path) from error
    if status.st_uid != os.getuid():
        raise ConfigError("belongs to another user: it names commands for your jobs.", at=path)
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(
            f"has mode {stat.S_IMODE(status.st_mode):o}, and addresses in it are secrets. Make it "
            f"yours alone: chmod 600 {shlex.quote(str(path))}",
            at=path,
        )


def read_notify(fields: Fields, *, trusted: bool) -> Notify | None:
    """Take `notify:`; not `trusted` is a site's, which only asks for mail to the user.

    Raises:
        ConfigError: something in it is wrong; with file and line, and without secrets.
    """
    rows = fields.mapping("notify", "notify")
    if not fields.has("notify"):
        return None
    events = _events(rows, USUAL)
    idle = rows.mapping("idle", "idle") if _is_mapping(rows, "idle") else None
    sinks: list[Sink] = []
    if rows.has("mail"):
        sinks.append(_mail(rows, events, trusted=trusted))
    for key in ("webhooks", "commands"):
        if not trusted and rows.has(key):
            raise ConfigError(
                f"a site's file may not have '{key}': it could send what your jobs do to others. "
                f"Only your own {config_folder() / CONFIG_FILE} may.",
                at=rows.at(key),
            )
    for name, row in rows.mappings("webhooks", "webhook").items():
        sinks.append(_webhook(name, row, events))
    for name, row in rows.mappings("commands", "command").items():
        sinks.append(_command(name, row, events))
    found = Notify(
        sinks=tuple(sinks),
        idle_s=_idle_s(idle or rows, "for" if idle else "idle"),
        idle_gpus=idle.choice("gpus", (ALL, ANY), ALL) if idle else ALL,
        of_site=not trusted,
    )
    for part in (idle, rows):
        if part:
            part.refuse_unknown()
    return found


def _is_mapping(fields: Fields, key: str) -> bool:
    return fields.has(key) and isinstance(fields.values[key][0], dict)


def _idle_s(fields: Fields, key: str) -> float:
    text = fields.text(key)
    if text is None:
        return _IDLE_S
    seconds = parse_seconds(text)
    if not seconds:
        raise ConfigError(
            f"'{key}' is {text!r}, must be a time as 20m or 1h30m.", at=fields.at(key)
        )
    return float(seconds)


def _events(fields: Fields, usual: tuple[str, ...]) -> tuple[str, ...]:
    from hpckit.documents import nearest  # noqa: PLC0415  # errors alone

    if not fields.has("events"):
        return usual
    events = fields.texts("events")
    for event in events:
        if event not in EVENTS:
            raise ConfigError(
                f"there is no event {event!r}. {nearest(event, EVENTS)}", at=fields.at("events")
            )
    return events


def _mail(rows: Fields, events: tuple[str, ...], *, trusted: bool) -> Mail:
    row = rows.mapping("mail", "mail")
    to = row.text("to") if trusted else None
    if to is not None and not _ADDRESS.fullmatch(to):
        raise ConfigError(f"'to' is {to!r}, must be one address.", at=row.at("to"))
    found = Mail(events=_events(row, events), by=row.choice("by", (SLURM, PROGRAM), SLURM), to=to)
    row.refuse_unknown()
    return found


def _webhook(name: str, row: Fields, events: tuple[str, ...]) -> Webhook:
    found = Webhook(
        name=name,
        events=_events(row, events),
        body=row.choice("body", BODIES, BODIES[0]),
        url=row.text("url"),
        url_env=_variable(row, "url_env"),
        url_file=row.text("url_file"),
        token=row.text("token"),
        token_env=_variable(row, "token_env"),
        token_file=row.text("token_file"),
        ca_file=row.text("ca_file"),
    )
    row.refuse_unknown()
    for word, needed in (("url", True), ("token", False)):
        ways = (word, f"{word}_env", f"{word}_file")
        given = [way for way in ways if getattr(found, way) is not None]
        if len(given) > 1 or (needed and not given):
            raise ConfigError(
                f"webhook {name!r} needs one of {', '.join(ways)}; it has {len(given)}.",
                at=row.mark,
            )
    if found.url and (why := wrong_url(found.url)):
        raise ConfigError(f"the 'url' of webhook {name!r} {why}.", at=row.at("url"))
    return found


def wrong_url(url: str) -> str | None:
    """Say what is wrong with a webhook's address, without it: it is a secret."""
    from urllib.parse import urlsplit  # noqa: PLC0415  # few have one

    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        return "is not an address as https://HOST/PATH"
    if parts.username is not None or parts.password is not None:
        return "has a password in it: use 'token', 'token_env' or 'token_file'"
    return None


def _variable(row: Fields, key: str) -> str | None:
    name = row.text(key)
    if name is not None and not _VARIABLE.fullmatch(name):
        raise ConfigError(
            f"'{key}' must be the name of a variable: letters, digits and underscores.",
            at=row.at(key),
        )
    return name


def _command(name: str, row: Fields, events: tuple[str, ...]) -> Command:
    argv = row.texts("run")
    if not argv or not argv[0]:
        raise ConfigError(
            f"command {name!r} needs 'run:', a list of a program and its arguments.", at=row.mark
        )
    found = Command(name=name, events=_events(row, events), argv=argv)
    row.refuse_unknown()
    return found
