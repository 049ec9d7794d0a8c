"""The page of suspects: its curve of drops can be read however small the shares are."""

import re

import pytest
import torch

from holdfast.data.examples import Examples
from holdfast.data.inputs import TensorInputs
from holdfast.poisoning.epic import Drop
from holdfast.report.pages.audit_poison import write_suspects


def _drop(epoch: int, count: int) -> Drop:
    some = torch.arange(count)
    return Drop(epoch, some, some * 0, some * 0 + 1, some.float(), some * 0)


@pytest.mark.parametrize("count", [1, 4, 30, 200])
def test_every_tick_of_the_share_dropped_has_a_label_of_its_own(tmp_path, count):
    train = Examples(
        TensorInputs(torch.zeros(1000, 2)), torch.arange(1000) % 2, ids=torch.arange(1000), class_names=("cat", "dog")
    )
    drops = [_drop(1, count), _drop(2, count)]
    page = write_suspects(tmp_path / "page.html", drops, [], train, name="data", about="by a test", facts={})
    shown = re.findall(r">([0-9.]+)%</", page.read_text())
    ticks = [float(label) for label in shown[:5]]
    assert ticks == pytest.approx([place * ticks[1] for place in range(5)]), (
        "the first five labels are the axis, in equal steps"
    )
