import math

import pytest
import torch
from torch import nn

from holdfast.papers.engine.witness import tell, watching


def test_nothing_is_kept_while_nobody_watches():
    tell("loss", 1.0)
    with watching() as seen:
        pass
    tell("loss", 2.0)
    assert seen == {}


def test_numbers_lists_and_mappings_are_kept_one_by_one():
    with watching() as seen:
        tell("loss", 0.5)
        tell("along", [1, 2.0])
        tell("by", {"a": 3, "b": [4]})
    assert seen == {"loss": 0.5, "along[0]": 1.0, "along[1]": 2.0, "by/a": 3.0, "by/b[0]": 4.0}


def test_what_is_told_again_is_kept_again():
    with watching() as seen:
        for value in (1.0, 2.0, 3.0):
            tell("loss", value)
    assert seen == {"loss": 1.0, "loss~2": 2.0, "loss~3": 3.0}


def test_a_tensor_is_kept_by_its_norm_and_by_a_number_that_its_order_changes():
    with watching() as seen:
        tell("a", torch.tensor([3.0, 4.0]))
        tell("b", torch.tensor([4.0, 3.0]))
    assert seen["a|norm"] == seen["b|norm"] == 5.0
    assert seen["a|wave"] == pytest.approx(3 * math.cos(math.sqrt(2)) + 4 * math.cos(2 * math.sqrt(2)))
    assert seen["a|wave"] != pytest.approx(seen["b|wave"], rel=1e-3)


def test_a_model_is_all_its_weights_and_buffers():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with watching() as seen:
        tell("model", model)
        model[1].running_mean += 1
        tell("model", model)
    square = sum(float(p.double().square().sum()) for p in model.state_dict().values())
    assert seen["model|norm~2"] == pytest.approx(math.sqrt(square))
    assert seen["model|norm"] != seen["model|norm~2"]


def test_watchers_do_not_see_what_an_inner_one_sees():
    with watching() as outer:
        tell("a", 1.0)
        with watching() as inner:
            tell("b", 2.0)
    assert (outer, inner) == ({"a": 1.0}, {"b": 2.0})
