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
    from hpckit.api.bad_nodes import BadNodes, add_bad_node, bad_nodes, forget_bad_node
    from hpckit.api.call import call, map
    from hpckit.api.call_result import Call, Calls
    from hpckit.api.cancel import cancel
    from hpckit.api.clean import Cleaned, Cleaning, clean
    from hpckit.api.collections import (
        Added,
        add_collection,
        added_collections,
        collections,
        new_collection,
        trust_folder,
    )
    from hpckit.api.doctor import (
        Check,
        Checks,
        doctor,
        doctor_gpu,
        doctor_mpi,
        doctor_notify,
        doctor_stats,
    )
    from hpckit.api.free import Free, FreePart, free
    from hpckit.api.job_stats import JobStats, StatsList
    from hpckit.api.jupyter import start_jupyter
    from hpckit.api.lookup import find, runs
    from hpckit.api.rebuild import rebuild_index
    from hpckit.api.report import report, report_schema
    from hpckit.api.run import Run
    from hpckit.api.run_list import RunList
    from hpckit.api.run_status import wait
    from hpckit.api.sample import sample
    from hpckit.api.scale import ScalingReport, Study, scale, study
    from hpckit.api.sites import Detected, Site, detect_cluster, init, site, site_page, sites
    from hpckit.api.stats import explain_advice, grafana_dashboard, stats, stats_schema
    from hpckit.api.submit import check, script, submit
    from hpckit.api.templates import (
        Linted,
        Template,
        file_schema,
        lint,
        template,
        template_variables,
        templates,
    )
    from hpckit.api.terminals import start_shell
    from hpckit.api.workloads import Workload, workload, workloads
    from hpckit.collections import Collection
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
    from hpckit.group_report.result import Report
    from hpckit.run_folders.metrics import Progress
    from hpckit.run_folders.reindex import Rebuilt
    from hpckit.slurm.states import JobState
    from hpckit.submission.status import RunStatus

__all__ = [
    "Added",
    "BadNodes",
    "Call",
    "Calls",
    "Check",
    "Checks",
    "Cleaned",
    "Cleaning",
    "Collection",
    "CommandError",
    "ConfigError",
    "DamagedRunError",
    "Detected",
    "Free",
    "FreePart",
    "HpckitError",
    "JobError",
    "JobState",
    "JobStats",
    "Linted",
    "NotFoundError",
    "OutsideError",
    "PlanError",
    "Progress",
    "Rebuilt",
    "Report",
    "RequestError",
    "Run",
    "RunList",
    "RunStatus",
    "ScalingReport",
    "Site",
    "StatsList",
    "StillRunningError",
    "StoppedError",
    "Study",
    "SubmissionError",
    "Template",
    "TemplateError",
    "UnknownOutcomeError",
    "Workload",
    "__version__",
    "add_bad_node",
    "add_collection",
    "added_collections",
    "bad_nodes",
    "call",
    "cancel",
    "check",
    "clean",
    "collections",
    "detect_cluster",
    "doctor",
    "doctor_gpu",
    "doctor_mpi",
    "doctor_notify",
    "doctor_stats",
    "explain_advice",
    "file_schema",
    "find",
    "forget_bad_node",
    "free",
    "grafana_dashboard",
    "init",
    "lint",
    "map",
    "new_collection",
    "rebuild_index",
    "report",
    "report_schema",
    "runs",
    "sample",
    "scale",
    "script",
    "site",
    "site_page",
    "sites",
    "start_jupyter",
    "start_shell",
    "stats",
    "stats_schema",
    "study",
    "submit",
    "template",
    "template_variables",
    "templates",
    "trust_folder",
    "wait",
    "workload",
    "workloads",
]

if not TYPE_CHECKING:
    _HOMES = {
        "hpckit.api.bad_nodes": ("BadNodes", "add_bad_node", "bad_nodes", "forget_bad_node"),
        "hpckit.api.call": ("call", "map"),
        "hpckit.api.call_result": ("Call", "Calls"),
        "hpckit.api.cancel": ("cancel",),
        "hpckit.api.clean": ("Cleaned", "Cleaning", "clean"),
        "hpckit.api.collections": (
            *("Added", "add_collection", "added_collections"),
            *("collections", "new_collection", "trust_folder"),
        ),
        "hpckit.api.doctor": (
            *("Check", "Checks", "doctor", "doctor_gpu", "doctor_mpi"),
            *("doctor_notify", "doctor_stats"),
        ),
        "hpckit.api.free": ("Free", "FreePart", "free"),
        "hpckit.api.job_stats": ("JobStats", "StatsList"),
        "hpckit.api.lookup": ("find", "runs"),
        "hpckit.api.rebuild": ("rebuild_index",),
        "hpckit.api.report": ("report", "report_schema"),
        "hpckit.api.run": ("Run",),
        "hpckit.api.run_list": ("RunList",),
        "hpckit.api.run_status": ("wait",),
        "hpckit.api.sample": ("sample",),
        "hpckit.api.scale": ("ScalingReport", "Study", "scale", "study"),
        "hpckit.api.sites": (
            *("Detected", "Site", "detect_cluster", "init"),
            *("site", "site_page", "sites"),
        ),
        "hpckit.api.stats": ("explain_advice", "grafana_dashboard", "stats", "stats_schema"),
        "hpckit.api.submit": ("check", "script", "submit"),
        "hpckit.api.templates": (
            *("Linted", "Template", "file_schema", "lint"),
            *("template", "template_variables", "templates"),
        ),
        "hpckit.api.terminals": ("start_shell",),
        "hpckit.api.jupyter": ("start_jupyter",),
        "hpckit.api.workloads": ("Workload", "workload", "workloads"),
        "hpckit.collections": ("Collection",),
        "hpckit.run_folders.reindex": ("Rebuilt",),
        "hpckit.run_folders.metrics": ("Progress",),
        "hpckit.group_report.result": ("Report",),
        "hpckit.slurm.states": ("JobState",),
        "hpckit.submission.status": ("RunStatus",),
    }
    _HOME = {name: home for home, names in _HOMES.items() for name in names}
    # No |= here and no list[str] below: scripts of an older Python must get to the line that says
    # so (hpckit/oldest.py).
    _HOME.update({name: "hpckit.errors" for name in __all__ if name.endswith("Error")})

    def __getattr__(name: str) -> object:
        """Bring a public name from its module (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module 'hpckit' has no attribute {name!r}")
        if sys.hexversion < 0x30B0000:  # a job's, which finds hpckit.parallel
            raise ImportError(
                f"hpckit.{name} needs Python 3.11 or newer, and this is {sys.version.split()[0]}: "
                "call it where hpckit is installed, or choose another environment (hpckit submit "
                "--env ...)"
            )
        value = getattr(__import__(_HOME[name], fromlist=[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> "list[str]":
        return sorted({*globals(), *__all__})

    class _Package(type(sys)):
        """`hpckit.stats` is the function; the folder is there for `from hpckit.stats.X import Y`.

        Python hangs each module that is imported onto its package, by its name.
        """

        def __setattr__(self, name: str, value: object) -> None:
            if not (name in _HOME and isinstance(value, type(sys))):
                super().__setattr__(name, value)

        def __reduce__(self) -> "tuple[object, tuple[str]]":
            """Be pickled by name, as cloudpickle does modules: functions have this one in them."""
            return __import__, (self.__name__,)

    sys.modules[__name__].__class__ = _Package
