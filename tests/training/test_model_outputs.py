import torch
import torch.nn.functional as F

from holdfast.training.model_outputs import ModelOutputs, evaluating
from tests.training.toy import toy_examples, toy_model


def test_outputs_equal_a_plain_forward_pass_in_dataset_order():
    model, examples = toy_model(), toy_examples()
    x, y = examples.gather(torch.arange(60))
    model.eval()
    with torch.no_grad():
        expected = model(x)
        features = model.body(x)
    model.train()
    outputs = ModelOutputs(model, examples, batch_size=7)
    assert torch.allclose(outputs.logits(), expected, atol=1e-6)
    assert torch.allclose(outputs.losses(), F.cross_entropy(expected, y, reduction="none"), atol=1e-6)
    assert torch.allclose(outputs.features(), features, atol=1e-6)
    assert torch.allclose(outputs.residuals(), expected.softmax(1) - F.one_hot(y, 2), atol=1e-6)


def test_residuals_are_the_gradient_with_respect_to_the_logits():
    examples = toy_examples()
    outputs = ModelOutputs(toy_model(), examples)
    logits = outputs.logits().requires_grad_()
    F.cross_entropy(logits, examples.labels, reduction="sum").backward()
    assert torch.allclose(outputs.residuals(), logits.grad, atol=1e-6)


def test_each_example_is_passed_at_most_once():
    outputs = ModelOutputs(toy_model(), toy_examples(), features=True, batch_size=8)
    outputs.losses(torch.tensor([3, 5, 3]))
    assert outputs.forwarded == 2
    outputs.residuals(torch.tensor([5, 9]))
    assert outputs.forwarded == 3
    outputs.features()
    outputs.probabilities()
    assert outputs.forwarded == 60


def test_the_model_is_left_as_it_was():
    model = toy_model()
    model.body[1].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ModelOutputs(model, toy_examples(), features=True).features()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training
    assert not model.body[1].training
    assert model.body[3].training


def test_modes_come_back_after_an_error():
    model = toy_model()
    try:
        with evaluating(model):
            raise KeyError
    except KeyError:
        assert model.training


def test_answers_can_be_changed_without_changing_the_sweep():
    outputs = ModelOutputs(toy_model(), toy_examples())
    outputs.logits().zero_()
    assert outputs.logits().abs().sum() > 0
