"""Opens what the outside world once said."""

from pathlib import Path

RECORDED = Path(__file__).parents[1] / "recorded"


def slurm_said(name: str) -> str:
    return RECORDED.joinpath("slurm", name).read_text(encoding="utf-8")
