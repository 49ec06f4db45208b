"""Whether `notify:` works: a test event to everybody who is to be told of jobs."""

import time
from collections.abc import Iterator

from hpckit.doctor import Check, Level, bad, good, unknown
from hpckit.errors import CommandError, HpckitError
from hpckit.notify.event import TEST, Event
from hpckit.notify.sending import send, shown
from hpckit.owners import user_name
from hpckit.paths import config_folder
from hpckit.sinks import CONFIG_FILE, Command, Mail, Notify, Webhook, mail_options
from hpckit.slurm.cluster import config

_WAIT_S = 10.0
_KINDS = {Webhook: "webhook", Command: "command", Mail: "mail"}


def telling_checks(notify: Notify | None) -> Iterator[Check]:
    """Send a test event to each sink; say what became of it, without secrets."""
    if notify is None or not notify.sinks:
        path = config_folder() / CONFIG_FILE
        yield Check(
            level=Level.UNKNOWN,
            what="nobody is told of your jobs",
            todo=f"'notify:' in {path} says who is: docs/notify.md",
            counts=False,
        )
        return
    event = Event(
        event=TEST, at=time.time(), job_id="0", name="test", run_id="none", user=user_name()
    )
    for sink in notify.sinks:
        if sink is notify.mail_by_slurm:
            yield from _by_slurm(notify.mail_by_slurm)
            continue
        where = f"{_KINDS[type(sink)]} {sink.name!r} ({shown(sink)})"
        try:
            send(sink, event, _WAIT_S)
        except HpckitError as error:
            yield bad(f"{where} was not told", str(error))
            continue
        clear = isinstance(sink, Webhook) and shown(sink).startswith("http:")
        more = "; the address is http: others on the way can read it" if clear else ""
        yield good(f"{where} was told, at {', '.join(sink.events)}{more}")


def _by_slurm(mail: Mail) -> Iterator[Check]:
    """Say what sbatch is asked for: only a job shows whether mail comes."""
    options = " ".join(f"--{word}" for word in mail_options(mail))
    if not options:
        yield bad(
            f"mail by Slurm does not know {', '.join(mail.events)}",
            "Slurm tells of start, restart, failure and end; 'by: mail' tells of all",
        )
        return
    try:
        program = config().get("MailProg", "")
    except CommandError as error:
        yield unknown("mail by Slurm", str(error))
        return
    yield good(f"mail by Slurm ({program or 'its own program'}): jobs get {options}")
