"""`hpckit templates diff`: one that extends what it shadows is compared block by block."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.render.written_out import written_out
from tests.conftest import Answer
from tests.unit.lab import make_lab

BELOW = """\
#!/bin/bash
{# no {% block a %} #}
{% block header %}
#SBATCH --nodes=2
{% block more %}
one
{% endblock more %}
{% endblock %}
{% block setup -%}
old
{% endblock %}
end
"""
NAMES = {"base", "lab:base"}


def test_its_blocks_stand_in_the_text_of_the_one_it_extends() -> None:
    own = (
        '{# ours #}\n{% extends "base" %}\n{% set x = 1 %}\n'
        "{% block header %}\n{{ super() -}}\n#SBATCH --mail\n{% endblock %}\n"
        "{%- block setup %}\nnew\n{%- endblock %}\n"
    )
    text = written_out(own, BELOW, NAMES)
    assert text.startswith("{# ours #}\n\n{% set x = 1 %}\n#!/bin/bash\n{# no {% block a %} #}\n")
    assert "#SBATCH --nodes=2\n{% block more %}\none\n{% endblock more %}\n#SBATCH --mail\n" in text
    assert "\nold\n" not in text
    assert "{% block setup -%}\nnew" in text
    assert text.endswith("{% endblock %}\nend\n")


def test_a_block_in_a_block_and_one_that_only_others_have() -> None:
    own = "{% extends 'lab:base' %}{% block more %}two{% endblock %}{% block far %}3{% endblock %}"
    text = written_out(own, BELOW, NAMES)
    assert "{% block more %}two{% endblock more %}" in text
    assert text.endswith("end\n{% block far %}3{% endblock %}\n")


@pytest.mark.parametrize(
    "own",
    [
        "all of it\n",
        "{% extends 'other' %}{% block a %}{% endblock %}",
        "{# as {% extends 'base' %} does #}all of it\n",
        "{% raw %}{% extends 'base' %}{% endraw %}all of it\n",
    ],
)
def test_what_extends_nothing_or_another_stays_as_it_is(own: str) -> None:
    assert written_out(own, BELOW, NAMES) == own


@pytest.mark.long
def test_thousands_of_blocks_in_blocks_end_without_a_traceback() -> None:
    deep = "".join(f"{{% block b{n} %}}" for n in range(600)) + "{% endblock %}" * 600
    own = "{% extends 'base' %}" + deep
    assert written_out(own, deep, NAMES) in (own, deep)


def test_the_difference_shows_what_the_template_changes_and_no_more(
    cli: Callable[..., Answer], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (make_lab(here.parent / name) for name in ("first", "second"))
    extends = '{% extends "slurm/base.sh.j2" %}\n{% block setup %}\n{{ super() -}}\n'
    for folder, word in ((first, "one"), (second, "two")):
        path = folder / "templates" / "slurm" / "base.sh.j2"
        path.write_text(f"{extends}export LAB={word}\n{{% endblock %}}\n")
        (folder / "hpckit.yaml").write_text(f"name: {folder.name}\n")
    monkeypatch.setenv("HPCKIT_COLLECTIONS", f"{first}:{second}")
    said = cli("templates", "diff", "base")
    lines = [row for row in said.out.splitlines() if row[:1] in "+-"][2:]
    assert lines == ["+export LAB=one"]
    assert " export LAB=two" in said.out.splitlines()
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(first))
    said = cli("templates", "diff", "base")
    assert [row for row in said.out.splitlines() if row[:1] in "+-"][2:] == ["+export LAB=one"]
    assert said.status == 0
