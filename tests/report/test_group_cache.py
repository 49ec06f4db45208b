"""A second report asks sacct for what is new only, and says the same as one that asks for all."""

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpckit.owners import user_name
from tests.conftest import Answer, add_program
from tests.report.groups import HOUR, NOW, moment, row

pytestmark = pytest.mark.long
Cli = Callable[..., Answer]
DAY = 86400
# As sacct does: jobs that overlap a time, of these users, or these jobs.
_SACCT = """#!{python}
import json, sys, time
options = dict(word.partition("=")[::2] for word in sys.argv[1:])
with open({log!r}, "a") as stream:
    stream.write(json.dumps(options) + chr(10))
read = lambda text: time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
since, until = read(options["--starttime"]), read(options.get("--endtime", "2099-01-01T00:00:00"))
jobs, users = options.get("--jobs"), options.get("--user")
for row in json.load(open({rows!r})):
    end = 9e12 if row["End"] == "Unknown" else float(row["End"])
    asked = row["JobID"] in jobs.split(",") if jobs else True
    if asked and (not users or row["User"] in users.split(",")):
        if float(row["Start"]) <= until and end >= since:
            print(options["--delimiter"].join(row[name] for name in options["--format"].split(",")))
"""
_SCONTROL = "#!/bin/sh\necho 'ClusterName             = {name}'\n"
# As 22.05 prints them; the first PrivateData is slurm.conf's, the second slurmdbd.conf's.
_SACCTMGR = """#!/bin/sh
case "$*" in
  *withcoord*) echo '{level}|{accounts}' ;;
  *config) printf 'PrivateData            = none\nPrivateData            = {private}\n' ;;
esac
"""


class Database:
    """What accounting has, and how it was asked."""

    def __init__(self, folder: Path, clock: list[float]) -> None:
        self.folder, self.clock = folder, clock
        self.rows: list[dict[str, str]] = []
        log, rows = str(folder / "asked.jsonl"), str(folder / "rows.json")
        text = _SACCT.format(python=sys.executable, log=log, rows=rows)
        add_program(folder / "bin" / "sacct", text)
        self.of_cluster("one")
        self.shows()

    def of_cluster(self, name: str) -> None:
        add_program(self.folder / "bin" / "scontrol", _SCONTROL.format(name=name))

    def shows(self, level: str = "None", accounts: str = "", private: str = "none") -> None:
        """Let sacctmgr say who the user is, and what a user is not shown."""
        text = _SACCTMGR.format(level=level, accounts=accounts, private=private)
        add_program(self.folder / "bin" / "sacctmgr", text)

    def asked(self) -> list[dict[str, str]]:
        """With which options sacct was called since the last time, once per call."""
        log = self.folder / "asked.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def save(self) -> None:
        (self.folder / "rows.json").write_text(json.dumps(self.rows))


@pytest.fixture
def database(here: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Three hundred jobs of 40 days, of two users; a few of them run."""
    clock = [float(NOW)]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    made, chance = Database(here.parent, clock), random.Random(7)
    for number in range(300):
        start = NOW - chance.randrange(40 * DAY)
        made.rows.append(
            row(str(number), start, chance.random() * 40, User=chance.choice(("ann", "bob")))
            | {"TimelimitRaw": "6000"}
        )
        if int(made.rows[-1]["End"]) > NOW or number == 9:
            made.rows[-1] |= {"State": "RUNNING", "End": "Unknown"}
    made.save()
    return made


def report(cli: Cli, *words: str) -> dict[str, Any]:
    answer = cli("report", "--all", "--json", *words)
    assert answer.status == 0, answer.err
    said: dict[str, Any] = json.loads(answer.out)
    return said


def forget(here: Path) -> None:
    for path in kept(here):
        path.unlink()


def kept(here: Path) -> list[Path]:
    return sorted((here.parent / "home" / ".cache" / "hpckit" / "report").glob("*.json"))


def test_the_second_asks_for_the_last_day_only_and_says_the_same(
    database: Database, cli: Cli, here: Path
) -> None:
    first = report(cli)
    assert [moment(one["--starttime"]) for one in database.asked()] == [NOW - 30 * DAY]
    assert report(cli) == first
    window, probes = database.asked()
    assert moment(window["--starttime"]) == NOW - DAY - 60
    assert "--jobs" in probes
    assert len(probes["--jobs"].split(",")) <= 9
    (file,) = kept(here)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "later_s"),
    [
        (("--since", "29d"), 0),
        ((), 7 * DAY),
        (("--since", "20d", "--until", "10d"), 0),
        (("--since", "20d", "--until", "10d"), 3 * DAY),
        (("--since", "3h"), 0),
        (("--by", "user"), 90_000),
    ],
)
def test_any_later_report_equals_one_that_asks_for_all(
    database: Database, cli: Cli, here: Path, words: tuple[str, ...], later_s: int
) -> None:
    report(cli)
    database.clock[0] += later_s
    for number, one in enumerate(database.rows):  # what ran has ended, and more has begun
        if one["End"] == "Unknown" and number % 2 and later_s:
            one |= {"State": "COMPLETED", "End": str(NOW + later_s // 2)}
    for number in range(5):
        database.rows.append(row(f"90{number}", NOW + later_s - (number + 1) * HOUR, 0.5))
    database.save()
    database.asked()
    again = report(cli, *words)
    assert all("--jobs" in one or moment(one["--starttime"]) >= NOW - 21 * DAY
               for one in database.asked())  # fmt: skip
    third = report(cli, *words)
    forget(here)
    assert again == third == report(cli, *words)


@pytest.mark.parametrize("words", [(), ("--anonymous",)])
def test_equally_wasteful_jobs_and_numbers_for_names_keep_their_order(
    database: Database, cli: Cli, words: tuple[str, ...]
) -> None:
    """sacct goes by job, and what is kept by end; of each user's jobs one fails at once."""
    database.rows = [
        row(str(job), NOW - (20 - day) * DAY, 2, User=user, State="FAILED")
        for job, day, user in ((9, 6, "ann"), (10, 2, "bob"), (11, 4, "bob"), (12, 19.5, "ann"))
    ]  # fmt: skip
    database.rows.append(row("13", NOW - 15 * DAY, 1, User="ann", State="FAILED"))
    database.save()
    first = report(cli, *words)
    assert report(cli, *words) == first
    listed = [job["job_id"] for job in first["wasteful"]]
    assert listed == (["job 1", "job 2", "job 3", "job 4", "job 5"] if words else
                      ["9", "10", "11", "12", "13"])  # fmt: skip


def test_what_changed_late_is_seen(database: Database, cli: Cli, here: Path) -> None:
    """A row that slurmdbd got late, of a job that ended an hour ago."""
    before = report(cli)["total"]["jobs"]
    database.rows.append(row("777", NOW - 4 * HOUR, 3))
    database.save()
    assert report(cli)["total"]["jobs"] == before + 1


@pytest.mark.parametrize("change", ["purged", "another", "running"])
def test_accounting_that_says_otherwise_is_asked_for_all(
    database: Database, cli: Cli, here: Path, change: str
) -> None:
    report(cli)
    if change == "purged":
        database.rows = [one for one in database.rows if int(one["Start"]) > NOW - 10 * DAY]
    elif change == "another":
        for one in database.rows:
            one["User"] = "carol"
    else:  # Slurm lost it, and an administrator gave it an end (sacctmgr show runawayjobs)
        one = next(one for one in database.rows if one["End"] == "Unknown")
        one |= {"State": "FAILED", "End": str(int(one["Start"]) + 5)}
        one["Start"] = str(NOW - 20 * DAY)
        one["End"] = str(NOW - 20 * DAY + 5)
    database.save()
    database.asked()
    said = report(cli)
    assert said["notes"] == [
        "what was kept of earlier reports differs from accounting now: all asked anew"
    ]
    forget(here)
    assert report(cli) | {"notes": said["notes"]} == said


def test_another_cluster_and_other_users_do_not_mix(database: Database, cli: Cli) -> None:
    whole = report(cli)["total"]["jobs"]
    answer = json.loads(cli("report", "--user", "ann", "--json").out)
    assert 0 < answer["total"]["jobs"] < whole
    database.of_cluster("two")
    database.rows = [row("1", NOW - 9 * DAY, 1)]
    database.save()
    database.asked()
    assert report(cli)["total"]["jobs"] == 1
    (only,) = database.asked()
    assert moment(only["--starttime"]) == NOW - 30 * DAY


@pytest.mark.parametrize("now", [{"accounts": "lab"}, {"level": "Operator"}, {"private": "none"}])
def test_who_is_shown_more_jobs_than_before_gets_all_of_them(
    database: Database, cli: Cli, here: Path, now: dict[str, str]
) -> None:
    """A group's lead is made coordinator: what was kept has the lead's own jobs alone."""
    database.shows(private="jobs,users")
    everybodys = database.rows
    database.rows = [one for one in everybodys if one["User"] == "ann"]
    database.save()
    first = report(cli)["total"]["jobs"]
    assert report(cli)["total"]["jobs"] == first
    database.rows = everybodys
    database.save()
    database.shows(**now)
    said = report(cli)
    forget(here)
    assert said == report(cli)
    assert said["total"]["jobs"] > first


@pytest.mark.parametrize(
    ("shown", "words", "hidden"),
    [
        ({"private": "jobs"}, ["--all"], True),
        ({"private": "accounts,jobs,usage"}, ["--account", "lab"], True),
        ({"private": "jobs", "accounts": "lab,phys"}, ["--account", "Lab"], False),
        ({"private": "jobs", "accounts": "phys"}, ["--account", "lab"], True),
        ({"private": "jobs", "level": "Operator"}, ["--all"], False),
        ({"private": "usage"}, ["--all"], False),
    ],
)
def test_where_slurm_hides_others_jobs_a_report_of_them_says_so(
    database: Database, cli: Cli, shown: dict[str, str], words: list[str], hidden: bool
) -> None:
    """Their account's own line would else look like all of its jobs."""
    database.shows(**shown)
    notes = json.loads(cli("report", *words, "--json").out)["notes"]
    assert any("Slurm shows you your own jobs" in note for note in notes) is hidden


def test_what_accounting_shows_is_not_asked_for_ones_own_jobs(
    database: Database, cli: Cli, here: Path
) -> None:
    add_program(here.parent / "bin" / "sacctmgr", "#!/bin/sh\nexit 1\n")
    (note,) = report(cli)["notes"]
    assert note.startswith("nothing is kept for the next report: 'sacctmgr' exited with status 1")
    assert kept(here) == []
    database.rows = [one | {"User": user_name()} for one in database.rows]
    database.save()
    assert json.loads(cli("report", "--json").out)["notes"] == []
    assert len(kept(here)) == 1


@pytest.mark.parametrize("damage", ["cut", "byte", "older", "writable", "link"])
def test_a_damaged_file_is_thrown_away_in_one_line(
    database: Database, cli: Cli, here: Path, damage: str
) -> None:
    first = report(cli)
    (file,) = kept(here)
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-20])
    elif damage == "byte":
        file.write_bytes(content.replace(b'"ann"', b'"bob"', 1))
    elif damage == "older":
        file.write_bytes(content.replace(b'"version": [2', b'"version": [1', 1))
    elif damage == "writable":
        file.chmod(0o666)
    else:
        file.unlink()
        file.symlink_to(here)
    database.asked()
    said = report(cli)
    (note,) = said["notes"]
    assert note.startswith("what was kept of earlier reports is thrown away: ")
    assert said | {"notes": []} == first
    assert len(database.asked()) == 1
    assert report(cli)["notes"] == []


def test_without_a_cluster_or_a_folder_of_ones_own_nothing_is_kept(
    database: Database, cli: Cli, here: Path
) -> None:
    cache = here.parent / "home" / ".cache"
    add_program(here.parent / "bin" / "scontrol", "#!/bin/sh\nexit 1\n")
    assert report(cli)["notes"] == []
    assert kept(here) == []
    database.of_cluster("one")
    cache.mkdir(exist_ok=True)
    cache.chmod(0o777)
    (note,) = report(cli)["notes"]
    assert note.startswith("nothing is kept for the next report: ")
    assert str(cache) in note
    assert report(cli, "--anonymous")["notes"] == ["nothing is kept for the next report"]
    assert kept(here) == []


def test_what_ends_in_the_second_that_was_asked_for_is_not_lost(
    database: Database, cli: Cli, here: Path
) -> None:
    """Slurm cuts its moments to whole seconds."""
    database.clock[0] = NOW + 0.7
    database.rows = [row("1", NOW - 9 * DAY, 1), row("2", NOW - 3 * DAY, 0)]
    database.rows[1] |= {"State": "RUNNING", "End": "Unknown"}
    database.save()
    words = ("--since", "20d")
    assert report(cli, *words)["total"]["jobs"] == 2
    database.rows[1] |= {"State": "COMPLETED", "End": str(NOW - DAY)}
    database.save()
    assert report(cli, *words)["total"]["jobs"] == 2
