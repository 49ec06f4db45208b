"""`doctor gpu`: what each GPU of a short job says of itself. Pure."""

from collections.abc import Iterator

from hpckit.doctor.model import Check, bad, good, unknown
from hpckit.doctor.trial import Trial


def gpu_checks(trial: Trial, ranks: int) -> Iterator[Check]:
    """Read a trial in which each rank touched one GPU."""
    if trial.refused:
        yield bad("a job with GPUs", trial.refused)
        return
    if trial.late:
        yield unknown("the GPUs", f"{trial.lateness}: try again, or --within 1h", counts=True)
        return
    for rank in range(ranks):
        said = trial.said.get(rank)
        if said is None:
            todo = f"{trial.why} (hpckit logs {trial.job_id} --rank {rank})"
            yield bad(f"GPU of rank {rank} was not reached", todo)
            continue
        where = f"{said.get('host')} GPU {said.get('index')}"
        if said.get("fault") or not said.get("name"):
            local = trial.job_id.startswith("local-")
            todo = "tell the cluster's support, and use other nodes with --exclude"
            todo = "ranks run on the CPU here" if local else todo
            yield bad(f"{where}: {said.get('fault')}", todo)
        else:
            yield good(f"{where}: {_about(said)}")


def _about(said: dict[str, object]) -> str:
    memory = said.get("memory_bytes")
    size = f", {memory / 1e9:.0f} GB" if isinstance(memory, int) else ""
    by = str(said.get("by"))
    tested = "computes correctly" if by.startswith("torch") else "found, but not tested: no torch"
    return f"{said['name']}{size}, {tested} ({by})"
