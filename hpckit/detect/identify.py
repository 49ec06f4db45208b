"""By what a site is known again on the cluster's other login nodes."""

import glob
import re
from collections.abc import Iterator

from hpckit.detect.lines import line, quoted, section
from hpckit.detect.model import Surroundings


def identify_lines(here: Surroundings) -> Iterator[str]:
    """Yield the lines of `identify:`."""
    pattern, conf = host_pattern(here.hostname), here.slurm_conf
    if pattern:
        why = "this machine's full name, without its number"
        lines = [line("hostname", quoted(pattern), why)]
    elif conf and conf.isprintable():
        lines = [line("SLURM_CONF", quoted(glob.escape(conf)), "this shell's environment")]
    else:
        lines = [
            line(
                "hostname",
                None,
                "this machine's name does not identify it: set HPCKIT_SITE or --site",
            )
        ]
    yield from section("identify", lines)


def host_pattern(hostname: str) -> str | None:
    """Return a pattern for all login nodes: of `login2.site.org` it is `login[0-9]*.site.org`."""
    name, dot, domain = hostname.partition(".")
    if name in ("", "localhost") or not re.fullmatch(r"[\w.-]+", hostname, re.ASCII):
        return None
    stem = name.rstrip("0123456789")
    open_number = stem not in ("", name) and bool(stem.strip("-"))
    return (f"{stem}[0-9]*" if open_number else name) + dot + domain
