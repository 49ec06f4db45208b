"""Where a job's run is: its folder, and which part of a long array it is."""

from pathlib import Path

from hpckit.frozen import frozen


@frozen(kw_only=True)
class ArrayPart:
    """One of several Slurm arrays that make up one submission: `count` tasks from `first` on.

    All but the last have `size` tasks, a power of ten. So the number in a task's folder name is the
    part's number followed by Slurm's own index, which Slurm can write into the log's path.
    """

    first: int
    count: int
    size: int

    @property
    def log(self) -> str:
        """What follows `_` in the name of a task's folder, as a pattern of sbatch(1)."""
        digits = len(str(self.size)) - 1
        return f"{self.first // self.size}%{digits}a" if self.first else "%a"


@frozen(kw_only=True)
class RunPlace:
    """Where a submission lives: its id and folder (for an array, the array's own).

    `part` is one Slurm array of several, where all tasks do not fit into one; `link` is the number
    of one job of a chain. `copy`: where in the run's folder a copy of the folder `project` will be.
    """

    run_id: str
    dir: Path
    cwd: str
    after: tuple[str, ...] = ()
    part: ArrayPart | None = None
    link: int = 0
    copy: str | None = None
    project: Path | None = None

    @property
    def first(self) -> int:
        """The number of the first task; of a chain's job, its own."""
        return self.part.first if self.part else self.link


def submitit_folder(run_dir: Path, first: int = 0) -> Path:
    """Return the folder (mode 700) of submitit's pickles; each array or job of several has one."""
    return run_dir / "submitit" / str(first) if first else run_dir / "submitit"
