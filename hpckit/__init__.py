"""hpckit: submit multi-GPU work to Slurm with one line, and see what the GPUs did with it.

    run = hpckit.submit("ddp", "train.py", nodes=2, gpus=4)
    run.wait(); run.state; run.logs(); run.stats().summary.gpu_utilization_percent
    hpckit.call(simulate, 3, seed=1, gpus=1).result()

docs/python.md has the rest. `import hpckit` loads nothing: a name brings its module when it is
first used.
"""

import sys

from hpckit.version import __version__

TYPE_CHECKING = False  # typing's own would cost more than all the rest
if TYPE_CHECKING:
    from hpckit.api.call import Call, Calls, call, map
    from hpckit.api.cancel import cancel
    from hpckit.api.lookup import find, runs
    from hpckit.api.report import report
    from hpckit.api.run import Run, RunList, wait
    from hpckit.api.search import (
        Collection,
        Linted,
        Site,
        Template,
        Workload,
        lint,
        site,
        sites,
        template,
        template_variables,
        templates,
        workload,
        workloads,
    )
    from hpckit.api.stats import JobStats, StatsList, explain_advice, stats, stats_schema
    from hpckit.api.submit import check, script, submit
    from hpckit.errors import (
        CommandError,
        ConfigError,
        DamagedRunError,
        HpckitError,
        JobError,
        NotFoundError,
        OutsideError,
        PlanError,
        RequestError,
        StillRunningError,
        StoppedError,
        SubmissionError,
        TemplateError,
        UnknownOutcomeError,
    )
    from hpckit.group.writing import Report
    from hpckit.metrics import Progress
    from hpckit.slurm.states import JobState
    from hpckit.submission.states import RunStatus

__all__ = [
    "Call",
    "Calls",
    "Collection",
    "CommandError",
    "ConfigError",
    "DamagedRunError",
    "HpckitError",
    "JobError",
    "JobState",
    "JobStats",
    "Linted",
    "NotFoundError",
    "OutsideError",
    "PlanError",
    "Progress",
    "Report",
    "RequestError",
    "Run",
    "RunList",
    "RunStatus",
    "Site",
    "StatsList",
    "StillRunningError",
    "StoppedError",
    "SubmissionError",
    "Template",
    "TemplateError",
    "UnknownOutcomeError",
    "Workload",
    "__version__",
    "call",
    "cancel",
    "check",
    "explain_advice",
    "find",
    "lint",
    "map",
    "report",
    "runs",
    "script",
    "site",
    "sites",
    "stats",
    "stats_schema",
    "submit",
    "template",
    "template_variables",
    "templates",
    "wait",
    "workload",
    "workloads",
]

if not TYPE_CHECKING:
    _HOMES = {
        "hpckit.api.call": ("Call", "Calls", "call", "map"),
        "hpckit.api.lookup": ("find", "runs"),
        "hpckit.api.cancel": ("cancel",),
        "hpckit.api.report": ("report",),
        "hpckit.api.run": ("Run", "RunList", "wait"),
        "hpckit.api.stats": ("JobStats", "StatsList", "explain_advice", "stats", "stats_schema"),
        "hpckit.api.search": (
            *("Collection", "Linted", "Site", "Template", "Workload"),
            *("lint", "site", "sites", "workload", "workloads"),
            *("template", "template_variables", "templates"),
        ),
        "hpckit.api.submit": ("check", "script", "submit"),
        "hpckit.metrics": ("Progress",),
        "hpckit.group.writing": ("Report",),
        "hpckit.slurm.states": ("JobState",),
        "hpckit.submission.states": ("RunStatus",),
    }
    _HOME = {name: home for home, names in _HOMES.items() for name in names}
    _HOME |= {name: "hpckit.errors" for name in __all__ if name.endswith("Error")}

    def __getattr__(name: str) -> object:
        """Bring a public name from its module (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module 'hpckit' has no attribute {name!r}")
        value = getattr(__import__(_HOME[name], fromlist=[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    class _Package(type(sys)):
        """`hpckit.stats` is the function; the folder is there for `from hpckit.stats.X import Y`.

        Python hangs each module that is imported onto its package, by its name.
        """

        def __setattr__(self, name: str, value: object) -> None:
            if not (name in _HOME and isinstance(value, type(sys))):
                super().__setattr__(name, value)

    sys.modules[__name__].__class__ = _Package
