"""A script that trains alone on each of several ranks says so at its end: with the real torch."""

from pathlib import Path

from tests.unit.test_meetings import told

ALONE = """\
import torch
layer = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(layer.parameters())
layer(torch.ones(1, 2)).sum().backward()
optimizer.step()
"""


def test_what_torch_loads_by_itself_is_no_sign_of_a_meeting(tmp_path: Path) -> None:
    assert told(tmp_path / "a.py", text=ALONE) is False
