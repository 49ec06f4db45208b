"""How long bad nodes are remembered, and whether jobs leave them out: `bad_nodes:` in YAML.

A site's file may also name nodes. The user's own config.yaml wins over it.
"""

from hpckit.documents import Fields, read_document
from hpckit.errors import ConfigError, RequestError
from hpckit.frozen import frozen
from hpckit.paths import CONFIG, config_folder, is_there, refuse_foreign
from hpckit.sinks import CONFIG_FILE, refuse_open
from hpckit.slurm.hostlist import expand, is_host

KEY = "bad_nodes"


@frozen(kw_only=True)
class NodeRules:
    """All of a `bad_nodes:`; None: it does not say.

    Attributes:
        days: how long an event counts.
        exclude: whether jobs leave bad nodes out that do not say it.
        hosts: nodes that the site's file names.
    """

    days: float | None = None
    exclude: bool | None = None
    hosts: tuple[str, ...] = ()


def read_rules(fields: Fields, *, of_site: bool) -> NodeRules | None:
    """Take `bad_nodes:`; None where there is none.

    Raises:
        ConfigError: something in it is wrong; with file and line.
    """
    rows = fields.mapping(KEY, KEY)
    if not fields.has(KEY):
        return None
    days = rows.number("days")
    if days is not None and not 0 < days <= 3660:
        raise ConfigError(f"'days' is {days:g}, must be more than 0 and at most 3660.",
                          at=rows.at("days"))  # fmt: skip
    exclude = None if of_site or not rows.has("exclude") else rows.flag("exclude")
    hosts = _hosts(rows) if of_site else ()
    rows.refuse_unknown()
    return NodeRules(days=days, exclude=exclude, hosts=hosts)


def _hosts(rows: Fields) -> tuple[str, ...]:
    found: list[str] = []
    for text in rows.texts("hosts"):
        try:
            names = expand(text)
        except RequestError as error:
            raise ConfigError(str(error), at=rows.at("hosts")) from error
        if wrong := next((name for name in names if not is_host(name)), None):
            raise ConfigError(f"{wrong!r} is not the name of a node.", at=rows.at("hosts"))
        found += names
    return tuple(dict.fromkeys(found))


def find_rules(of_site: NodeRules | None) -> NodeRules:
    """Return what holds: the user's own words, else the site's; the site's nodes in any case.

    Raises:
        ConfigError: the user's file is wrong, or others could read or write it.
    """
    site, own = of_site or NodeRules(), NodeRules()
    folder = config_folder()
    path = folder / CONFIG_FILE
    if is_there(path):
        refuse_foreign(folder, CONFIG)
        refuse_open(path)
        fields = read_document(path, "your configuration", secret=True)
        own = read_rules(fields, of_site=False) or own
    return NodeRules(
        days=site.days if own.days is None else own.days, exclude=own.exclude, hosts=site.hosts
    )
