"""`hpckit report`: what is asked of accounting, what is added up, and what is written."""

import calendar
import csv
import io
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import hpckit
from hpckit.group_report.allocations import parse_allocations
from hpckit.group_report.measured import Measured
from hpckit.group_report.result import Report
from hpckit.group_report.totals import total
from hpckit.run_folders.ranks import write_rank
from hpckit.sites import Costs
from hpckit.stop_marks import PREEMPTED, add_mark, marks_of
from tests.conftest import Answer, add_program
from tests.report.groups import HOUR, NOW, accounts, js1, moment, row, summary, uncounted, use
from tests.unit.made import PLAN, make_run, rank

pytestmark = pytest.mark.long
__all__ = ["accounts"]
Cli = Callable[..., Answer]


def test_hours_are_those_inside_the_time_of_the_report(accounts, cli: Cli) -> None:
    begin = NOW - 10 * HOUR
    accounts(
        row("1", begin - HOUR, 3),  # 2 of its 3 h inside: 4 GPU-hours
        row("2", begin + HOUR, 1.5, State="FAILED"),
        row("3", NOW - HOUR, 0, State="RUNNING", End="Unknown"),
        row("4", begin + HOUR, 1, AllocTRES="cpu=4,node=1"),
        row("5", begin - 5 * HOUR, 2),  # over before
        row("6", begin, 1, State="CANCELLED by 7", AllocTRES=""),  # in the queue
        row("7", 0, 0, State="PENDING", Start="Unknown", End="Unknown", AllocTRES=""),
    )
    said = json.loads(cli("report", "--since", "10h", "--json").out)
    whole = said["total"]
    assert whole["gpu_hours"] == 4 + 3 + 2
    assert whole["node_hours"] == 2 + 1.5 + 1 + 1
    assert (whole["jobs"], whole["failed_jobs"], whole["gpu_hours_failed"]) == (4, 1, 3)
    assert (whole["gpu_hours_asked"], whole["gpu_hours_ended"]) == (2 * 4 * 2, 6 + 3)
    assert (whole["wait_median_s"], whole["wait_p90_s"]) == (30, 30)
    assert (whole["utilization_percent"], whole["energy_kwh"]) == (None, None)
    assert [job["job_id"] for job in said["wasteful"]] == ["2"]


def test_time_suspended_is_not_held(accounts, cli: Cli) -> None:
    """Two GPUs: an hour of each three without cores; of a job that goes on, too."""
    away = {"Suspended": "01:00:00", "ElapsedRaw": str(2 * HOUR)}
    begin = NOW - 10 * HOUR
    accounts(
        row("1", begin + HOUR, 3, **away, AdminComment=js1(50, 50, hours=2)),
        row("2", begin - 1.5 * HOUR, 3, **away),  # half of it inside
        row("3", NOW - 3 * HOUR, 3, **away, State="SUSPENDED", End="Unknown"),
        row("4", begin + HOUR, 3, **away, AdminComment=js1(50, 50, hours=3)),
    )
    said = json.loads(cli("report", "--since", "10h", "--by", "name", "--json").out)
    whole = said["total"]
    assert whole["gpu_hours"] == pytest.approx(2 * (2 + 1 + 2 + 2))
    assert whole["node_hours"] == pytest.approx(2 + 1 + 2 + 2)
    assert (whole["gpu_hours_asked"], whole["gpu_hours_ended"]) == (2 * 4 * 3, 2 * 2 * 3)
    # jobstats' own record has the suspended hour in its mean.
    assert (whole["gpu_hours_measured"], whole["gpu_hours_used"]) == (4, 2)


def resized(begin: float, at: float, end: float, **cells: str) -> list[dict[str, str]]:
    """Return the rows of a job of four GPUs that went on with two, as Slurm 22.05 has them."""
    moment = {"Submit": str(at), "Eligible": str(at), "End": str(end)}
    whole = (end - begin) / HOUR
    return [
        row("1", begin, (at - begin) / HOUR, State="RESIZING", NNodes="2",
            AllocTRES="cpu=16,gres/gpu=4,node=2"),
        row("1", begin, whole, **moment | cells),
    ]  # fmt: skip


@pytest.mark.parametrize("right", [False, True])
def test_parts_of_a_resized_job_follow_one_another(accounts, cli: Cli, right: bool) -> None:
    """4 GPUs for 2 h, then 2 for 1 h; `right`: a Slurm that says when the second part began."""
    begin, at, end = NOW - 5 * HOUR, NOW - 3 * HOUR, NOW - 2 * HOUR
    rows = resized(begin, at, end, State="FAILED")
    rows[1] |= {"Start": str(at), "ElapsedRaw": str(HOUR)} if right else {}
    accounts(*rows)
    said = json.loads(cli("report", "--since", "10h", "--json").out)
    whole = said["total"]
    assert (whole["gpu_hours"], whole["node_hours"], whole["jobs"]) == (10, 5, 1)
    assert (whole["failed_jobs"], whole["gpu_hours_failed"]) == (1, 10)
    assert whole["wait_attempts"] == [1, 0, 0, 0, 0, 0]
    # Four hours were asked for: two of them with four GPUs, as held, and two with two.
    assert (whole["gpu_hours_asked"], whole["gpu_hours_ended"]) == (4 * 2 + 2 * 2, 10)
    # The first part alone, or the second.
    until = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(NOW - 4 * HOUR))
    early = json.loads(cli("report", "--since", "10h", "--until", until, "--json").out)["total"]
    late = json.loads(cli("report", "--since", "150m", "--json").out)["total"]
    assert (early["gpu_hours"], late["gpu_hours"], late["wait_median_s"]) == (4, 1, None)


def test_a_part_that_is_known_alone_has_what_is_left_of_the_limit(accounts, cli: Cli) -> None:
    accounts(resized(NOW - 5 * HOUR, NOW - 3 * HOUR, NOW - 2 * HOUR)[1])
    whole = json.loads(cli("report", "--since", "10h", "--json").out)["total"]
    assert (whole["gpu_hours"], whole["gpu_hours_asked"], whole["wait_median_s"]) == (2, 4, None)


def test_a_resized_job_that_was_suspended_and_runs(accounts, cli: Cli) -> None:
    """An hour of each part was suspended; the second is."""
    first, second = resized(NOW - 5 * HOUR, NOW - 3 * HOUR, NOW)
    away = {"Suspended": "01:00:00", "ElapsedRaw": str(HOUR)}
    accounts(first | away, second | away | {
        "State": "SUSPENDED", "End": "Unknown", "ElapsedRaw": str(3 * HOUR + HOUR),
    })  # fmt: skip
    whole = json.loads(cli("report", "--since", "10h", "--json").out)["total"]
    assert whole["gpu_hours"] == pytest.approx(4 * 1 + 2 * 2)


def test_a_summary_of_all_of_a_resized_job_is_that_of_each_part(
    accounts, cli: Cli, here: Path
) -> None:
    """At its end a job does not know of the change; its energy is not that of a part."""
    begin, at, end = NOW - 5 * HOUR, NOW - 3 * HOUR, NOW - 2 * HOUR
    accounts(*resized(begin, at, end))
    run = make_run(here / "runs", job_id="1", executor="slurm", submitted_at=begin - 60)
    said = summary(begin, 25)
    said["attempts"][0]["elapsed_s"] = 3 * HOUR
    (run.dir / "summary.json").write_text(json.dumps(said))
    whole = json.loads(cli("report", "--since", "10h", "--json").out)["total"]
    assert (whole["gpu_hours_measured"], whole["gpu_hours_used"]) == (10, 2.5)
    assert whole["energy_kwh"] is None


def test_a_start_that_accounting_lost_leaves_out_suspended_time() -> None:
    cells = row("1", NOW, 0, Start="Unknown", End=str(NOW + 3 * HOUR), Suspended="1-00:00:00")
    (lost,) = parse_allocations("|".join(cells.values()), "|")
    found = lost.begun(NOW - 45 * HOUR, None)
    assert found
    assert found.share_held == 0.5


def test_the_hour_that_a_night_has_twice_is_asked_for_in_utc(
    accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sacct would take half past two for either, and leave out what ended in between."""
    asked = accounts()
    monkeypatch.setenv("TZ", "Europe/Stockholm")
    time.tzset()
    try:
        first = calendar.timegm((2025, 10, 26, 0, 30, 0))
        hpckit.report(users="dora", since=first, until=first + HOUR)
    finally:
        monkeypatch.undo()
        time.tzset()
    found = asked()
    assert (found["--starttime"], found["TZ"]) == ("2025-10-26T00:30:00", "UTC")
    assert found["--endtime"] == "2025-10-26T01:30:00"


def test_what_is_asked_of_accounting(accounts, cli: Cli, monkeypatch) -> None:
    asked = accounts()
    monkeypatch.setattr("hpckit.owners.login", lambda _uid=None: "me")
    answer = cli("report", "--since", "2026-09-01", "--until", "2026-09-03")
    assert answer.status == 0
    assert answer.out.startswith("GPU use of me, 2026-09-01 to 2026-09-03\n  0 jobs")
    options = asked()
    assert options["--user"] == "me"
    begin, end = (time.mktime((2026, 9, day, 0, 0, 0, 0, 0, -1)) for day in (1, 3))
    assert (moment(options["--starttime"]), moment(options["--endtime"])) == (begin, end)
    assert options.keys() >= {"--allocations", "--duplicates"}
    day = cli("report", "--since", "2026-09-01T08:30", "--until", "2026-09-02").out
    assert day.startswith("GPU use of me, 2026-09-01 08:30 to 2026-09-02 00:00\n")
    cli("report", "-A", "lab", "-A", "other")
    assert (asked()["--accounts"], "--allusers" in asked()) == ("lab,other", True)
    hpckit.report(users="dora", since=NOW - 3600)
    assert asked()["--user"] == "dora"
    hpckit.report(accounts="lab")
    assert asked()["--accounts"] == "lab"
    cli("report", "-u", "bob", "-u", "carol")
    assert asked()["--user"] == "bob,carol"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "soon"), "since 'soon' is neither an age (12h, 30d, 4w) nor a day"),
        (("--since", "1d", "--until", "2d"), "since 1d is not before until 2d. Give an"),
        (("--by", "weak"), "by 'weak' is unknown. Did you mean 'week'?"),
        (("--user", "a,b"), "'a,b' cannot be the name of a user or an account. Give the option "
         "once for each name."),
        (("--account", ""), "'' cannot be the name of a user or an account: it is empty."),
        (("--account", "la'b"), '"la\'b" cannot be the name of a user or an account. Give it as '
         "sacctmgr shows it."),
        (("--account=--all",), "'--all' cannot be the name of a user or an account."),
        (("--user", "a", "--all"), "Give users or everyone (--user or --all), not both."),
        (("--json", "--csv"), "Give one of --json, --csv, --markdown, --html, --template and "
         "--schema."),
    ],
)  # fmt: skip
def test_a_wrong_word_is_one_error(accounts, cli: Cli, words: tuple[str, ...], said: str) -> None:
    accounts()
    answer = cli("report", *words)
    assert (answer.status, answer.out) == (2, "")
    assert said in answer.err


def test_a_cluster_without_accounting_is_one_error(here: Path, cli: Cli) -> None:
    add_program(here.parent / "bin" / "sacct", "#!/bin/sh\necho 'Slurm accounting storage is "
                "disabled' >&2\nexit 1\n")  # fmt: skip
    answer = cli("report")
    assert answer.status == 3
    assert "This cluster keeps no accounting" in answer.err


def test_a_text_that_is_no_answer_is_not_taken_for_no_jobs(here: Path, cli: Cli) -> None:
    add_program(here.parent / "bin" / "sacct", "#!/bin/sh\necho 'Welcome to the cluster'\n")
    answer = cli("report")
    assert answer.status == 3
    assert "Welcome to the cluster" in answer.err


def test_names_cannot_pass_for_rows(accounts, cli: Cli) -> None:
    evil = "x\n99|mallory|lab|gpu|COMPLETED|\n\x1b[2J=cmd()|`id`<script>"
    accounts(row("1", NOW - HOUR, 0.5, JobName=evil, AdminComment="JS1:abc\n7"))
    said = json.loads(cli("report", "--by", "name", "--json").out)
    assert [group["name"] for group in said["groups"]] == [evil]
    assert said["total"]["jobs"] == 1
    page = cli("report", "--by", "name").out
    assert "\x1b" not in page
    assert "x\\n99|mallory" in page
    table = cli("report", "--by", "name", "--markdown").out
    assert "<script>" not in table
    assert "\\<script\\>" in table


def test_no_name_is_a_formula_in_a_spreadsheet(accounts, cli: Cli) -> None:
    accounts(row("1", NOW - HOUR, 1, JobName="=HYPERLINK(1)"), row("2", NOW - HOUR, 0.5))
    rows = list(csv.DictReader(io.StringIO(cli("report", "--by", "name", "--csv").out)))
    assert [one["name"] for one in rows] == ["'=HYPERLINK(1)", "train"]
    assert [float(one["gpu_hours"]) for one in rows] == [2, 1]


def test_no_name_in_csv_reaches_a_terminal_as_it_is(accounts, cli: Cli) -> None:
    """Standard output is a pipe here, as before `| less`."""
    names = ("\x1b]0;title\x07a", "\t=1+1", "two\nlines", 'a "b", c', "Grüße 中")
    accounts(*(row(str(at), NOW - HOUR, 1 / (at + 1), JobName=one) for at, one in enumerate(names)))
    said = cli("report", "--by", "name", "--csv").out
    assert not any(letter < " " for letter in said.replace("\n", ""))
    assert len(said.splitlines()) == 1 + len(names)
    assert [one["name"] for one in csv.DictReader(io.StringIO(said))] == [
        "\\x1b]0;title\\x07a", "\\t=1+1", "two\\nlines", 'a "b", c', "Grüße 中",
    ]  # fmt: skip
    assert hpckit.report(by="name").csv() == said


def test_no_note_reaches_a_terminal_as_it_is() -> None:
    """A ledger's file may have any name."""
    made = Report(
        who="me", since=0, until=HOUR, by="user", groups={}, total=total([]), notes=("x\x1b[2J",)
    )  # fmt: skip
    assert "x\\x1b[2J" in made.text()
    assert "\x1b" not in made.text() + made.markdown()


@pytest.mark.parametrize(
    ("joules", "energy", "co2"),
    [(0.0, "0 Wh", "0 g"), (14_400.0, "4 Wh", "0.18 g"), (3.6e6, "1.0 kWh", "45 g"),
     (7.2e9, "2,000.0 kWh", "90.0 kg")],
)  # fmt: skip
def test_little_energy_is_not_none(here: Path, joules: float, energy: str, co2: str) -> None:
    one = replace(use(0, HOUR, 50.0), measured=Measured(energy_joules=joules))
    made = Report(
        who="me", since=0, until=HOUR, by="user", groups={}, total=total([one]),
        costs=Costs(co2_g_per_kwh=45.0),
    )  # fmt: skip
    assert f"energy of GPUs {energy} (of 100 % of the GPU-hours), {co2} CO2" in made.text()
    page = made.html("page.html").read_text()
    assert f">{energy}</data>" in page
    assert f">{co2}</data>" in page


def test_the_sites_own_record_says_what_was_used(accounts, cli: Cli) -> None:
    accounts(
        row("1", NOW - 5 * HOUR, 4, AdminComment=js1(10, 30, hours=4)),
        row("2", NOW - 5 * HOUR, 1, AdminComment=js1(90)),  # one of two GPUs: unknown
        row("3", NOW - 5 * HOUR, 1, AdminComment="JS1:None"),
        row("4", NOW - 5 * HOUR, 1, AdminComment=js1(100, 100), User="bob"),
    )
    said = json.loads(cli("report", "--all", "--json").out)
    alice, bob = said["groups"]
    assert (alice["name"], bob["name"]) == ("alice", "bob")
    assert alice["gpu_hours"] == 12
    assert alice["gpu_hours_measured"] == 8
    assert alice["gpu_hours_used"] == pytest.approx(8 * 0.2)
    assert alice["gpu_hours_unused"] == pytest.approx(8 * 0.8)
    assert alice["utilization_percent"] == pytest.approx(20)
    assert alice["utilization_hours"] == [0, 8, 0, 0, 0]
    assert bob["utilization_hours"] == [0, 0, 0, 0, 2]
    assert [(job["job_id"], job["gpu_hours_wasted"]) for job in said["wasteful"]] == [
        ("1", pytest.approx(6.4))
    ]


def test_hours_that_nobody_measured_are_not_zero(accounts, cli: Cli) -> None:
    accounts(
        row("1", NOW - 5 * HOUR, 1, JobName="unknown"),
        row("2", NOW - 5 * HOUR, 1, JobName="known", AdminComment=js1(50, 50)),
        row("3", NOW - 5 * HOUR, 1, JobName="cpu", AllocTRES="cpu=8,node=1", ReqTRES="cpu=8"),
    )
    said = {
        row["name"]: row
        for row in json.loads(cli("report", "--by", "name", "--json").out)["groups"]
    }
    figures = ("gpu_hours_measured", "gpu_hours_used", "gpu_hours_unused")
    assert [said["unknown"][name] for name in figures] == [0, None, None]
    assert [said["known"][name] for name in figures] == [2, 1, 1]
    assert [said["cpu"][name] for name in figures] == [0, 0, 0]
    table = {
        line["name"]: line
        for line in csv.DictReader(cli("report", "--by", "name", "--csv").out.splitlines())
    }
    assert [table["unknown"][name] for name in figures[1:]] == ["", ""]
    assert [table["cpu"][name] for name in figures[1:]] == ["0.0", "0.0"]


def test_a_record_of_another_attempt_says_nothing_of_this_one(accounts, cli: Cli) -> None:
    """Slurm keeps AdminComment when a job is requeued; the epilog replaces it at the next end."""
    accounts(
        row("1", NOW - 9 * HOUR, 1, State="NODE_FAIL", AdminComment=js1(90, 90, hours=4)),
        row("1", NOW - 7 * HOUR, 4, AdminComment=js1(90, 90, hours=4)),
        row("2", NOW - 7 * HOUR, 1, AdminComment=js1(90, 90, nodes=2)),
    )
    whole = json.loads(cli("report", "--all", "--json").out)["total"]
    assert (whole["gpu_hours"], whole["gpu_hours_measured"]) == (12, 8)


def test_ones_own_runs_say_what_was_used(accounts, cli: Cli, here: Path) -> None:
    start = NOW - 5 * HOUR
    accounts(row("11", start, 2), row("12", start, 1), row("13", start, 1))
    for job_id, used, covered in (("11", 25.0, 95.0), ("12", 80.0, 40.0)):
        run = make_run(
            here / "runs", f"ddp-{job_id}", job_id=job_id, submitted_at=start - 61,
            workload={"name": "ddp"},
        )  # fmt: skip
        (run.dir / "summary.json").write_text(json.dumps(summary(start, used, covered)))
    # The same number, of a run that came after: Slurm counts anew some day.
    later = make_run(here / "runs", "later", job_id="13", submitted_at=start + HOUR)
    (later.dir / "summary.json").write_text(json.dumps(summary(start, 99)))
    said = json.loads(cli("report", "--by", "workload", "--json").out)
    ddp, other = said["groups"]
    assert (ddp["name"], ddp["gpu_hours"], other["name"]) == ("ddp", 6, "-")
    assert (ddp["gpu_hours_measured"], ddp["utilization_percent"]) == (4, 25)
    assert ddp["energy_kwh"] == 2
    assert said["total"]["gpu_hours_measured"] == 4
    assert said["wasteful"][0]["advice"] == "Ask for one GPU."
    page = cli("report").out
    assert "utilization 25 % (known of 50 % of the GPU-hours): 3.0 GPU-hours without work" in page
    assert "energy of GPUs 2.0 kWh (of 50 % of the GPU-hours)" in page


def test_ones_own_runs_know_what_a_preemption_has_ended(accounts, cli: Cli, here: Path) -> None:
    """Slurm calls FAILED what ends in its grace time, or takes a later end for its own."""
    start = NOW - 5 * HOUR
    states = {"11": "FAILED", "12": "FAILED", "13": "PREEMPTED", "14": "FAILED"}
    accounts(*(row(job_id, start, 1, State=state) for job_id, state in states.items()))
    codes, plan = {"11": 143, "12": 3, "13": 0}, {**PLAN, "ranks": 1}
    for job_id, code in codes.items():
        run = make_run(here / "runs", job_id, job_id=job_id, submitted_at=start - 61, plan=plan)
        told = job_id == "11"
        ended = {"ended": start + 60.0, "exit_code": code, "consequence": told}
        if job_id == "13":  # preempted in its first attempt
            add_mark(marks_of(run.dir, 0), 0, PREEMPTED)
            earlier = rank(0, started=start - HOUR, ended=start - HOUR + 60, exit_code=0)
            write_rank(run.dir, earlier)
            ended["restart"] = 1
        elif told:
            add_mark(marks_of(run.dir, 0), 0, PREEMPTED)
        write_rank(run.dir, rank(0, started=start + 1, **ended))
    said = json.loads(cli("report", "--json", "--by", "state").out)
    groups = {group["name"]: group["jobs"] for group in said["groups"]}
    assert groups == {"PREEMPTED": 1, "FAILED": 2, "COMPLETED": 1}
    assert said["total"]["failed_jobs"] == 2


def test_a_preemption_in_the_second_of_the_start_is_known(accounts, cli: Cli, here: Path) -> None:
    """Slurm's end has no fraction: the rank seemed to begin after it, and the job was FAILED."""
    start = NOW - 5 * HOUR
    accounts(row("11", start, 0, State="FAILED"))
    plan = {**PLAN, "ranks": 1}
    run = make_run(here / "runs", "11", job_id="11", submitted_at=start - 61, plan=plan)
    add_mark(marks_of(run.dir, 0), 0, PREEMPTED)
    write_rank(run.dir, rank(0, started=start + 0.2, ended=start + 0.6, exit_code=0))
    said = json.loads(cli("report", "--json", "--by", "state").out)
    assert {group["name"]: group["jobs"] for group in said["groups"]} == {"PREEMPTED": 1}


def test_costs_come_from_the_sites_file(accounts, cli: Cli, here: Path) -> None:
    costs = {"gpu_hour": 1.5, "currency": "EUR", "pue": 1.5, "co2_g_per_kwh": 100}
    file = here / "templates" / "sites" / "ours.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"description": "ours", "costs": costs}))
    start = NOW - 5 * HOUR
    accounts(row("11", start, 2))
    run = make_run(here / "runs", job_id="11", submitted_at=start - 61)
    (run.dir / "summary.json").write_text(json.dumps(summary(start, 25)))
    found = hpckit.report(site="ours")
    assert (found.money, found.co2_kg) == (6.0, pytest.approx(2 * 1.5 * 0.1))
    assert "cost 6.00 EUR" in cli("report", "--site", "ours").out
    file.write_text(yaml.safe_dump({"description": "ours", "costs": {"pue": 0.5}}))
    wrong = cli("report", "--site", "ours")
    assert wrong.status == 2
    assert f"{file}:" in wrong.err
    assert "'pue' is 0.5, must be at least 1." in wrong.err


def test_names_can_be_hidden(accounts, cli: Cli, here: Path) -> None:
    run = make_run(here / "runs", job_id="71", submitted_at=NOW - 6 * HOUR)
    said_of_it = summary(NOW - 5 * HOUR, 10) | {"advice": [{"message": "secret"}]}
    (run.dir / "summary.json").write_text(json.dumps(said_of_it))
    accounts(
        row("71", NOW - 5 * HOUR, 1, User="mallory", State="FAILED", JobName="secret"),
        row("72", NOW - 5 * HOUR, 3, User="trent", State="FAILED", JobName="secret"),
    )
    for shape in ((), ("--json",), ("--csv",), ("--markdown",)):
        for option, by in (("--anonymous", "user"), ("--hide-names", "name")):
            said = cli("report", "-u", "mallory", "-u", "trent", option, "--by", by, *shape)
            assert said.status == 0
            assert not any(word in said.out for word in ("mallory", "trent", "secret", "71", "72"))
    rows = csv.DictReader(
        io.StringIO(cli("report", "--all", "--hide-names", "--by", "user", "--csv").out)
    )
    assert [(one["user"], one["gpu_hours"]) for one in rows] == [
        ("user 1", "6.0"), ("user 2", "2.0"),
    ]  # fmt: skip


def test_gpus_that_slurm_does_not_count_are_said(accounts, cli: Cli) -> None:
    accounts(row("1", NOW - HOUR, 0.5, AllocTRES="cpu=1,gres/shard=3,node=1"))
    said = cli("report").out
    assert "of 1 attempt Slurm does not say how many GPUs it had: it counts as none" in said


def test_gpus_that_accounting_does_not_list_are_not_none(accounts, cli: Cli, here: Path) -> None:
    """Of one's own runs the plan has them; of others' jobs nobody knows."""
    uncounted(here)
    start, without = NOW - 5 * HOUR, {"AllocTRES": "cpu=1,mem=2G,node=1"}
    accounts(row("71", start, 2, **without), row("72", start, 1, **without), row("73", start, 1))
    make_run(here / "runs", job_id="71", submitted_at=start - 61, plan={**PLAN, "total_gpus": 4})
    said = json.loads(cli("report", "--all", "--json").out)
    assert said["total"]["gpu_hours"] == 4 * 2 + 2
    assert said["notes"] == [
        "of 1 attempt Slurm does not say how many GPUs it had: it counts as none; "
        "AccountingStorageTRES in slurm.conf has no gres/gpu"
    ]


LOST = {"Start": "None", "ElapsedRaw": "0"}


def test_a_start_that_accounting_lost_is_that_of_the_ranks(accounts, cli: Cli, here: Path) -> None:
    start = NOW - 5 * HOUR
    again = start + 3 * HOUR
    accounts(
        row("11", start, 2, State="REQUEUED", **LOST),
        row("11", again, 1, **LOST, Submit=f"{start + 2 * HOUR}"),
        row("12", NOW - HOUR, 0, State="RUNNING", End="Unknown", **LOST),
        row("13", start - 20 * HOUR, 1, **LOST),  # over before, and its run is gone
    )
    run = make_run(here / "runs", "a", job_id="11", submitted_at=start - 61)
    for restart, begun in enumerate((start, again)):
        write_rank(run.dir, rank(0, restart=restart, started=begun + 0.5, ended=None))
    runs = make_run(here / "runs", "b", job_id="12", submitted_at=NOW - HOUR - 61)
    write_rank(runs.dir, rank(0, started=NOW - HOUR, ended=None))
    said = json.loads(cli("report", "--since", "10h", "--json").out)
    whole = said["total"]
    assert whole["gpu_hours"] == pytest.approx(2 * (2 + 1 + 1), abs=1e-3)
    assert (whole["jobs"], whole["wait_median_s"]) == (2, None)
    (note,) = said["notes"]
    assert note.startswith("of 3 attempts accounting has lost the start: the hours count from ")


def test_what_nobody_knows_the_hours_of_is_left_out_and_said_in_every_form(
    accounts, cli: Cli, here: Path
) -> None:
    start = NOW - 5 * HOUR
    accounts(
        row("1", start, 2),
        row("2", start, 2, State="FAILED", **LOST),
        row("3", start, 2, State="CANCELLED by 7", AllocTRES="", **LOST),  # in the queue
        row("4", start, 2, State="COMPLETED", End="Unknown", **LOST),
    )
    said = json.loads(cli("report", "--json").out)
    assert (said["total"]["gpu_hours"], said["total"]["jobs"]) == (4, 1)
    assert (said["total"]["failed_jobs"], said["total"]["gpu_hours_asked"]) == (0, 8)
    (note,) = said["notes"]
    assert note == (
        "2 attempts left out of all figures: accounting has lost the start, so the GPU-hours are "
        "unknown (2 of alice, 4 of alice)"
    )
    assert note in " ".join(cli("report").out.split())
    table = cli("report", "--csv")
    assert (note in table.err, "left out" in table.out) == (True, False)
    assert "2 attempts left out" in cli("report", "--markdown").out
    cli("report", "--html", "page.html")
    assert note in (here / "page.html").read_text()
    hidden = cli("report", "--hide-names", "--json").out
    assert "2 attempts left out" in hidden
    assert "alice" not in hidden


def test_a_narrow_terminal_gets_every_figure(
    accounts, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = NOW - 5 * HOUR
    accounts(
        row("1", start, 2, AdminComment=js1(25, 25, hours=2)),
        row("2", start, 2, State="FAILED", JobName="long" * 20),
        row("3", start, 2, **LOST),
    )
    wide = cli("report").out
    for columns in (60, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        narrow = cli("report").out
        lines = narrow.splitlines()
        assert max(len(line) for line in lines if "longlong" not in line) <= columns
        assert "long" * 20 in narrow
        assert "  gpu-h     8.0" in lines
        told = " ".join(wide.partition("\n\n")[0].split())
        assert " ".join(narrow.partition("\n\n")[0].split()) == told


def test_odd_rows_do_no_harm() -> None:
    mark = "\x1fm"
    odd = [
        [
            "8",
            "u",
            "a",
            "p",
            "WEIRD",
            "x",
            "None",
            "12",
            "N/A",
            "-",
            "?",
            "Partition_Limit",
            "?",
            "gres/gpu=",
        ],
        ["9_[1-5]", "u", "a", "p", "PENDING", "1", "1", *["Unknown"] * 2, "0", "", "1", "1", ""],
    ]
    text = "\n".join(mark.join([*cells, "", "", "name"]) for cells in odd)
    (found,) = parse_allocations(text + "\n", mark)
    assert (found.job_id, found.state, found.gpus, found.limit_s) == ("8", "UNKNOWN", None, None)
    assert (found.wait_s, found.end, found.nodes) == (None, None, None)


def test_each_task_and_each_component_is_a_job(accounts, cli: Cli) -> None:
    accounts(*(row(name, NOW - 5 * HOUR, 2) for name in ("11_0", "11_1", "12+0", "12+1", "13")))
    total = json.loads(cli("report", "--all", "--since", "1d", "--json").out)["total"]
    assert (total["jobs"], total["gpu_hours"]) == (5, 20)
