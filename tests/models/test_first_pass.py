from types import SimpleNamespace

import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.models.first_pass import check_outputs, fill_lazy_layers, look_for_head

BATCH = torch.randn(2, 6)


class Does(nn.Module):
    def __init__(self, then):
        super().__init__()
        self.fc, self.then = nn.Linear(6, 3), then

    def forward(self, x):
        return self.then(self.fc(x))


@pytest.mark.parametrize(
    "then", [lambda out: out, lambda out: SimpleNamespace(logits=out), lambda out: out.log_softmax(1)]
)
def test_logits_pass(then):
    assert check_outputs(Does(then), BATCH, 3, "it").shape == (2, 3)


@pytest.mark.parametrize(
    ("then", "message"),
    [
        (lambda out: out[:, :2], "it gives 2 outputs for each example, fewer than the 3"),
        (lambda out: torch.cat([out, out], 1), "it gives 6 outputs for each example, more than the 3"),
        (lambda out: out[0], r"outputs of shape \(3,\) for 2 examples and 3 classes; return \(2, 3\)"),
        (lambda out: out[:, None], r"outputs of shape \(2, 1, 3\)"),
        (lambda out: (out, None), "it: the model returned a tuple"),
        (lambda out: {"scores": out}, "it: the model returned a dict"),
        (lambda out: out.argmax(1, keepdim=True).expand(2, 3), "floating-point logits"),
        (lambda out: out / 0, "NaN or infinity"),
        (lambda out: out.softmax(1), "probabilities, and the loss takes logits"),
        (
            lambda out: out.nothing,
            r"can't take inputs of shape \(2, 6\), float32: AttributeError.*test_first_pass.py, line",
        ),
    ],
)
def test_what_cannot_be_trained_is_a_sentence(then, message):
    with pytest.raises(ConfigError, match=message):
        check_outputs(Does(then), BATCH, 3, "it")


def test_a_margin_of_one_output_may_lie_anywhere():
    assert check_outputs(Does(lambda out: out[:, :1] * 0 + 1), BATCH, 1, "it").tolist() == [[1.0], [1.0]]


def test_named_inputs_are_passed_by_keyword_and_named_in_the_message():
    class Named(nn.Module):
        def forward(self, input_ids, attention_mask):
            return torch.stack([input_ids.sum(1), attention_mask.sum(1)], 1).float()

    inputs = {"input_ids": torch.ones(2, 4, dtype=torch.int64), "attention_mask": torch.ones(2, 4)}
    assert check_outputs(Named(), inputs, 2, "it").tolist() == [[4, 4], [4, 4]]
    with pytest.raises(ConfigError, match=r"inputs of shape input_ids \(2, 4\): TypeError"):
        check_outputs(Named(), {"input_ids": inputs["input_ids"]}, 2, "it")


def test_looking_leaves_modes_statistics_and_the_generator_as_they_were():
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 3))
    model[0].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.manual_seed(1)
    check_outputs(model, BATCH, 3, "it")
    look_for_head(model, BATCH)
    assert torch.equal(torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(1)))
    assert [module.training for module in model] == [False, True, True]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_it_is_said_how_the_head_was_found():
    deep = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    named = Does(lambda out: out)
    named.before = nn.Linear(6, 6)
    assert str(look_for_head(deep, BATCH)) == "head '1' (Linear 6 -> 3), found by position"
    assert str(look_for_head(named, BATCH)) == "head 'fc' (Linear 6 -> 3), found by the name 'fc'"
    assert str(look_for_head(Does(lambda out: out), BATCH)) == "head 'fc' (Linear 6 -> 3), the only linear layer"
    assert str(look_for_head(deep, BATCH, "1")) == "head '1' (Linear 6 -> 3), as given"


def test_no_head_is_told_and_a_wrong_one_refused():
    scaled = Does(lambda out: 2 * out)
    assert "no head: the layer 'fc' differs" in str(look_for_head(scaled, BATCH))
    assert "no nn.Linear at all" in str(look_for_head(nn.Identity(), BATCH))
    with pytest.raises(ConfigError, match="no part named 'head'"):
        look_for_head(scaled, BATCH, "head")
    with pytest.raises(ConfigError, match="something is applied after it"):
        look_for_head(scaled, BATCH, "fc")


def test_lazy_layers_that_cannot_take_the_shape_are_a_sentence():
    model = nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d())
    with pytest.raises(ConfigError, match=r"lazy layers of it get no size from inputs of shape \(6,\)"):
        fill_lazy_layers(model, (6,), "it")
    fill_lazy_layers(model, (1, 5, 5), "it")
    assert model[0].weight.shape == (2, 1, 3, 3)
    assert model[1].num_batches_tracked == 0
