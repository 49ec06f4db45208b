"""One tree of errors. `cli.main()` makes one line and an exit status of what reaches it.

    HpckitError                 exit 1
    ├── RequestError            exit 2   what was asked is wrong: unknown name, bad value or config
    │   ├── FileError                    a file is wrong; `at` says which, and its line
    │   │   ├── ConfigError              a collection, site or workload file
    │   │   └── TemplateError            a template cannot be found or rendered
    │   ├── PlanError                    the request does not fit the site or the workload
    │   ├── NotFoundError                no such job or run
    │   ├── UnsetVariableError           a path in a file has a variable that is not set
    │   └── DamagedRunError              a run whose files are not what hpckit writes
    ├── OutsideError            exit 3   something outside is missing or refused
    │   ├── CommandError                 a program is missing, timed out or failed
    │   ├── SubmissionError              sbatch said no
    │   │   └── NotTakenError                it got no answer, and Slurm has no such job
    │   ├── StillRunningError            it was not over in time (also Python's TimeoutError)
    │   └── UnknownOutcomeError          nobody can say whether Slurm took the job
    ├── JobError                exit 1   the job or the operation failed
    └── StoppedError            exit 130 the user stopped it

A message is one or two sentences: what is wrong, with the value in it, then what to do next.
"""

import errno
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class HpckitError(Exception):
    """Anything hpckit tells a user instead of showing a traceback."""

    exit_code = 1


class RequestError(HpckitError):
    """What was asked is wrong; asking again unchanged cannot work."""

    exit_code = 2


class Location(NamedTuple):  # `hpckit --help` starts without dataclasses
    """A file and a line of it, counted from 1; 0 is the file as a whole.

    `written` is the text of a single value of a document as it stands there: YAML reads `3.10` as
    3.1 and `12:00:00` as 43200 (base 60), which is not what someone who wants a text has written.
    """

    path: PathLike[str] | str
    line: int = 0
    written: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else str(self.path)


class FileError(RequestError):
    """A file is wrong: `why`, and where (None: it has no file); the message is both."""

    def __init__(self, why: str, *, at: "Location | Path | str | None" = None) -> None:
        super().__init__(why if at is None else f"{at}: {why}")
        self.why = why
        self.at = at if isinstance(at, Location) or at is None else Location(at)


class ConfigError(FileError):
    """A YAML file of a collection, a site or a workload is wrong."""


class MissingKeyError(ConfigError):
    """A key that a mapping must have is not there; the line is the mapping's."""


class TemplateError(FileError):
    """A template cannot be found, read or rendered."""


class PlanError(RequestError):
    """The request does not fit the site or the workload."""


class NotFoundError(RequestError):
    """There is no such job or run."""


class UnsetVariableError(RequestError):
    """A path of a file has a variable that is not set.

    `why` names the setting, its value and the variable, in half a sentence.
    """

    def __init__(self, setting: str, value: str, variable: str) -> None:
        self.why = f"`{setting}: {value}` needs {variable}, which is not set"
        super().__init__(f"{self.why}. Set it, or write the path without it.")


class DamagedRunError(RequestError):
    """A run's record is not what hpckit writes; other runs are as good as before."""


class OutsideError(HpckitError):
    """Something outside hpckit is missing or refused; asking again later may work."""

    exit_code = 3


class CommandError(OutsideError):
    """A program is missing, ran out of time or failed.

    `returncode` is None when the program did not finish; `stderr` is whatever it had said by then.
    """

    def __init__(
        self,
        message: str,
        *,
        argv: Sequence[str] = (),
        returncode: int | None = None,
        stderr: str = "",
    ) -> None:
        super().__init__(message)
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stderr = stderr


class TooSlowError(CommandError):
    """A program gave no answer in time, and was stopped: what it has done by then is not known."""


class SubmissionError(OutsideError):
    """sbatch refused the job, or answered without a job id."""


class NotTakenError(SubmissionError):
    """sbatch got no answer from Slurm, and Slurm has no such job: asking again may work."""


class UnknownOutcomeError(OutsideError):
    """Whether Slurm took the job is not known now; a later command will say."""


class StillRunningError(OutsideError, TimeoutError):
    """What was waited for was not over in time, and goes on."""


class StoppedError(HpckitError):
    """The user stopped it (Ctrl-C, SIGTERM, SIGHUP); the message says what became of the job."""

    exit_code = 130


class JobError(HpckitError):
    """The job, or the operation on it, failed."""


_TODO = {
    errno.ENOSPC: "Free some space there.",
    errno.EDQUOT: "Free some space there.",
    errno.EMFILE: "Let more files be open at once: ulimit -n",
    errno.EACCES: "Look who may use it: ls -ld",
    errno.EROFS: "Look how it is mounted: findmnt -T",
}


def disk_advice(error: OSError) -> str:
    """Return a sentence on what to do about what a disk, or a server of files, refused."""
    return _TODO.get(error.errno or 0, "Try again; if it stays so, ask the cluster's support.")


def refused_by_disk(error: OSError, at: str = "") -> OutsideError:
    """Return what a disk, or a server of files, refused where nothing better is known of it.

    `at` is the place where the error names none.
    """
    named = str(error.filename) if isinstance(error.filename, (str, PathLike)) else at
    return OutsideError(
        f"{repr(named) if named else 'A file'} cannot be read or written: "
        f"{error.strerror or error}. {disk_advice(error)}"
    )
