"""Write docs/options.md from the fields of `JobSpec`: `make docs`."""

from pathlib import Path

from hpckit.cli.options import help_of
from hpckit.job_spec.spec import OPTIONS, Option

PAGE = Path(__file__).with_name("options.md")
_TOP = """\
# Options of submit and resubmit

`hpckit submit` and `hpckit resubmit` take all of these, `hpckit.submit(...)` in Python takes them by the names in the second column. A site gives
defaults under `defaults:` in its YAML ([sites.md](sites.md)), where the table says so. `resubmit --unset NAME` forgets what was asked. This page is made by `make docs`.

| option | in Python | becomes | a site's default | |
|---|---|---|---|---|
"""
_SBATCH = """
## Other options of sbatch

`--sbatch KEY[=VALUE]` passes any option of sbatch that hpckit has no word for, as in `--sbatch mail-type=END --sbatch exclusive`. A site lists
them as `defaults: {sbatch: [...]}`, a workload as `sbatch: [...]` in its `workload.yaml`; of several values for one key, the user's counts, then the
workload's. They stand in the job script as `#SBATCH` lines. What hpckit writes itself (`output`, `array`, `ntasks`, ...) is refused, with the option to
use instead; Slurm judges the rest, and `--check` says what it thinks. A value is any printable text on one line, as in `--sbatch "comment=third try"`.
`resubmit --sbatch KEY=VALUE` changes one, `resubmit --unset sbatch:KEY` drops it.

## Arrays

`--array lr=0.1,0.01` starts one task per value; several `--array` make the product of their lists, or pairs of their values with `--zip`. `--array
lr=@values.txt` takes a value from each line of a file that is not empty, with the blanks at both ends; the values are kept with the request. A comma within a value is written `\\,`.
Each task gets its value as `--lr 0.1` after your arguments, or in the place of `{lr}` where they have it: `-- train --rate={lr}`.
"""


def page() -> str:
    """Return the page's text."""
    return _TOP + "".join(map(_line, OPTIONS.values())) + _SBATCH


def _line(row: Option) -> str:
    flags = " ".join(f"`{flag}`" for flag in row.flags) + (f" {row.metavar}" if row.metavar else "")
    becomes = f"`--{row.sbatch}`" if row.sbatch else ""
    site = f"`{row.word}:`" if row.site else ""
    cells = (flags, f"`{row.word}`", becomes, site, help_of(row))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
