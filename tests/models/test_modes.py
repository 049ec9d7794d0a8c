import pytest
from torch import nn

from holdfast.models.modes import constant_parameters, evaluation_mode


def frozen_in_part() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    model[1].eval()
    return model


def test_every_submodule_gets_its_own_mode_back_even_after_an_error() -> None:
    first, second = frozen_in_part(), frozen_in_part()
    with pytest.raises(KeyError), evaluation_mode(first, second):
        assert not any(module.training for model in (first, second) for module in model.modules())
        first[1].train()
        raise KeyError
    for model in (first, second):
        assert [module.training for module in model.modules()] == [True, True, False, True]


def test_parameters_are_constants_inside_the_block_and_frozen_ones_stay_frozen() -> None:
    model = frozen_in_part()
    model[0].weight.requires_grad_(False)
    with pytest.raises(KeyError), constant_parameters(model):
        assert not any(parameter.requires_grad for parameter in model.parameters())
        raise KeyError
    assert [name for name, parameter in model.named_parameters() if not parameter.requires_grad] == ["0.weight"]
