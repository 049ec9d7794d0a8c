import pytest
import torch
import torch.nn.functional as F

from holdfast.coresets.crest import gradient_proxies as looking
from holdfast.coresets.crest.gradient_proxies import gradient_proxies, undisturbed, weighted_loss
from holdfast.errors import HoldfastError
from holdfast.models.heads import features_and_logits
from holdfast.primitives.similarity import LastLayerGradients
from tests.coresets.toy import gaussians, net


@pytest.fixture
def examples():
    return gaussians(60)


POSITIONS = torch.arange(5, 45)


def test_proxies_equal_autograd(examples):
    model = net()
    inputs, labels = examples.gather(POSITIONS)
    features, logits = features_and_logits(model, inputs)
    losses = F.cross_entropy(logits, labels, reduction="none")
    by_logit, by_feature = torch.autograd.grad(losses.sum(), [logits, features], retain_graph=True)
    assert torch.allclose(gradient_proxies(model, examples, POSITIONS, proxy="logit").proxies, by_logit, atol=1e-6)
    assert torch.allclose(gradient_proxies(model, examples, POSITIONS, proxy="feature").proxies, by_feature, atol=1e-6)
    head = model[-1]
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(loss, [head.weight, head.bias], retain_graph=True)])
        for loss in losses
    ]
    exact = torch.stack(rows)
    proxies = gradient_proxies(model, examples, POSITIONS, proxy="last_layer")
    assert isinstance(proxies.proxies, LastLayerGradients)
    gram = (proxies.proxies.residuals @ proxies.proxies.residuals.T) * (
        proxies.proxies.features @ proxies.proxies.features.T + 1
    )
    assert torch.allclose(gram, exact @ exact.T, atol=1e-5)
    everything = torch.arange(len(POSITIONS)).numpy()
    squared = torch.from_numpy(proxies.proxies.squared_distances(everything)(slice(None), slice(None)))
    assert torch.allclose(squared.sqrt(), torch.cdist(exact.double(), exact.double()), atol=1e-4)
    full = gradient_proxies(model, examples, POSITIONS, proxy="full").proxies
    one = torch.autograd.grad(losses[3], list(model.parameters()))
    assert torch.allclose(full[3], torch.cat([g.flatten() for g in one]), atol=1e-6)
    assert torch.allclose(proxies.losses, losses.detach())


@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_a_look_leaves_no_trace(examples, statistics):
    model = net("batch", dropout=0.5).train()
    model[1].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    generator = torch.get_rng_state()
    for proxy in (None, "logit", "feature", "last_layer", "full"):
        gradient_proxies(model, examples, POSITIONS, proxy=proxy, statistics=statistics)
    weighted_loss(model, examples, POSITIONS, torch.ones(40), statistics).backward()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), generator)


def test_batch_statistics_are_those_of_the_examples_looked_at(examples):
    model = net("batch")
    inputs, labels = examples.gather(POSITIONS)
    with torch.no_grad():
        hidden = model[0](inputs)
        normal = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
        expected = F.cross_entropy(model[3](normal.tanh()), labels, reduction="none")
    assert torch.allclose(gradient_proxies(model, examples, POSITIONS).losses, expected, atol=1e-5)
    assert not torch.allclose(
        gradient_proxies(model, examples, POSITIONS, statistics="running").losses, expected, atol=1e-2
    )


def test_everything_is_put_back_after_an_error():
    model = net("batch").train()
    before = model[1].running_mean.clone()
    with pytest.raises(RuntimeError), undisturbed(model, "batch"):
        model(torch.randn(9, 8))
        model(torch.randn(9, 3))
    assert torch.equal(model[1].running_mean, before)
    assert model.training


def test_no_example_is_normalised_by_itself(monkeypatch):
    monkeypatch.setattr(looking, "_CHUNK", 20)
    proxies = gradient_proxies(net("batch"), gaussians(), torch.arange(41))
    assert len(proxies.losses) == 41


def test_a_model_that_has_diverged_chooses_nothing():
    model = net()
    with torch.no_grad():
        model[0].weight.fill_(torch.nan)
    with pytest.raises(HoldfastError, match="training has diverged; lower the learning rate"):
        gradient_proxies(model, gaussians(), POSITIONS)
