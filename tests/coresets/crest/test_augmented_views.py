"""Kept views: what mini-batches are chosen by is what is trained on and checked."""

import pytest
import torch
import torch.nn.functional as F

from holdfast.coresets import Crest
from holdfast.coresets.crest import crest
from holdfast.coresets.crest import gradient_proxies as looking
from holdfast.coresets.crest import trust_region as region
from holdfast.coresets.crest.augmented_views import AugmentedViews
from holdfast.data import Examples
from holdfast.errors import ConfigError
from holdfast.training import Curator
from tests.coresets.toy import CLASSES, gaussians, net, sgd


def noise(inputs, stream):
    return inputs + torch.randn(inputs.shape, generator=stream)


def small(**options):
    return Crest(**{"algorithm": "published", "batch_size": 16, "subset": 60, "cached_view": True, **options})


def train(curator, model, optimizer, steps):
    seen = []
    for batch in curator.steps(steps, model, optimizer):
        optimizer.zero_grad()
        (batch.weights * F.cross_entropy(model(batch.inputs), batch.labels, reduction="none")).mean().backward()
        optimizer.step()
        seen.append(batch)
    return seen


def test_each_example_has_one_view_however_often_it_is_named():
    examples, stream = gaussians(), torch.Generator().manual_seed(0)
    views = AugmentedViews.of(examples, torch.tensor([7, 3, 7, 200]), noise, stream)
    clean = examples.inputs.gather(torch.tensor([3, 7, 200]))
    expected = noise(clean, torch.Generator().manual_seed(0))
    assert len(views) == 3
    assert torch.equal(views.gather(torch.tensor([[200, 7], [7, 3]])), expected[torch.tensor([[2, 1], [1, 0]])])
    assert torch.equal(views.subset(torch.tensor([200, 3, 3])).gather(torch.tensor([3, 200])), expected[[0, 2]])


def test_texts_have_no_views():
    texts = Examples.of({"ids": torch.ones(4, 2).long()}, [0, 1, 0, 1])
    with pytest.raises(ConfigError, match="images only"):
        AugmentedViews.of(texts, torch.arange(4), noise, torch.Generator())


def test_an_example_looks_the_same_until_mini_batches_are_chosen_again():
    model = net()
    curator = Curator(gaussians(), small(tolerance=1e9), batch_size=16, augment=noise)
    looks = {}
    for batch in train(curator, model, sgd(model), 30):
        for position, inputs in zip(batch.positions.tolist(), batch.inputs, strict=True):
            looks.setdefault(position, []).append(inputs)
    assert max(len(several) for several in looks.values()) > 5
    assert all(torch.equal(one, several[0]) for several in looks.values() for one in several)
    clean = curator.examples.inputs.gather(torch.tensor(list(looks)))
    assert not torch.allclose(torch.stack([several[0] for several in looks.values()]), clean, atol=0.5)


def test_without_it_every_step_augments_anew():
    model = net()
    curator = Curator(gaussians(), small(tolerance=1e9, cached_view=False), batch_size=16, augment=noise)
    looks = {}
    for batch in train(curator, model, sgd(model), 10):
        for position, inputs in zip(batch.positions.tolist(), batch.inputs, strict=True):
            looks.setdefault(position, []).append(inputs)
    assert not any(torch.equal(several[0], several[1]) for several in looks.values() if len(several) > 1)


def test_choosing_modelling_and_checking_go_by_the_views(monkeypatch):
    """Clean inputs are zeros, so whatever was looked at without its view would be."""
    seen = {"choose": [], "model": [], "check": []}

    def watched(what, function):
        def looking(model, examples, positions, *arguments, **options):
            seen[what].append(examples.inputs.gather(positions))
            return function(model, examples, positions, *arguments, **options)

        return looking

    monkeypatch.setattr(crest, "gradient_proxies", watched("choose", looking.gradient_proxies))
    monkeypatch.setattr(region, "weighted_loss", watched("model", looking.weighted_loss))
    monkeypatch.setattr(region, "gradient_proxies", watched("check", looking.gradient_proxies))
    model = net()
    curator = Curator(Examples.of(torch.zeros(240, 8), torch.arange(240) % CLASSES), small(), augment=noise)
    train(curator, model, sgd(model), 5)
    assert all(len(inputs) >= 5 for inputs in seen.values())
    assert all(float(one.abs().min()) > 0 for inputs in seen.values() for one in inputs)


@pytest.mark.parametrize("options", [{}, {"every_batch": True}, {"reshuffle": True}])
def test_a_resumed_run_goes_on_with_the_same_views(options):
    def start():
        model = net()
        return model, sgd(model), Curator(gaussians(), small(tolerance=0.5, **options), batch_size=16, augment=noise)

    model, optimizer, curator = start()
    train(curator, model, optimizer, 8)
    kept = curator.state_dict(), model.state_dict(), optimizer.state_dict()
    kept = torch.utils._pytree.tree_map(lambda part: part.clone() if isinstance(part, torch.Tensor) else part, kept)
    expected = train(curator, model, optimizer, 12)
    again, other, resumed = start()
    resumed.load_state_dict(kept[0])
    again.load_state_dict(kept[1])
    other.load_state_dict(kept[2])
    found = train(resumed, again, other, 12)
    assert all(torch.equal(one.inputs, two.inputs) for one, two in zip(expected, found, strict=True))
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), again.parameters(), strict=True))


def test_nothing_to_keep_is_refused():
    model = net()
    curator = Curator(gaussians(), small(), batch_size=16)
    with pytest.raises(ConfigError, match="nothing is augmented; augment, or leave cached_view out"):
        next(curator.steps(1, model, sgd(model)))
