"""The example of the guide runs as it stands."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
GUIDE = Path(__file__).parents[2] / "docs" / "mirrored.md"


def test_the_guides_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example, as_tensorflow = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(as_tensorflow, str(GUIDE), "exec"), {})
    assert capsys.readouterr().out.count("loss: ") == 4
    assert (tmp_path / "model.pt").exists()
    exec(compile(example, str(GUIDE), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 + 4
    losses = [float(text) for text in re.findall(r"\d+\.\d+", printed[0])]
    assert losses == sorted(losses, reverse=True)
    assert "nan" not in " ".join(printed)
