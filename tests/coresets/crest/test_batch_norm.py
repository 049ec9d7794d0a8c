import pytest
import torch
from torch import nn

from holdfast.coresets import Crest, frozen_batch_norm, weighted_batch_norm
from holdfast.coresets.crest import crest
from holdfast.training import Curator, Training, fit
from holdfast.training.objective import Forward
from tests.coresets.toy import net, sgd, toy_splits


@pytest.mark.parametrize(("norm", "shape"), [(nn.BatchNorm1d, (6, 5)), (nn.BatchNorm2d, (6, 5, 3, 4))])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_whole_weights_are_repeated_examples(norm, shape, momentum):
    torch.manual_seed(0)
    x, weights = torch.randn(shape, dtype=torch.float64), torch.tensor([1.0, 3, 1, 2, 1, 4], dtype=torch.float64)
    repeated = x.repeat_interleave(weights.long(), 0)
    weighed, plain = norm(5, momentum=momentum).double(), norm(5, momentum=momentum).double()
    nn.init.normal_(weighed.weight)
    plain.load_state_dict(weighed.state_dict())
    expected = plain(repeated)
    with weighted_batch_norm(weighed, weights):
        found = weighed(x).repeat_interleave(weights.long(), 0)
    assert torch.allclose(found, expected)
    assert torch.allclose(weighed.running_mean, plain.running_mean)
    assert int(weighed.num_batches_tracked) == 1


def test_equal_weights_change_nothing():
    torch.manual_seed(0)
    x, one, two = torch.randn(8, 3, 4, 4), nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    with weighted_batch_norm(one, torch.full((8,), 0.3)):
        found = one(x)
    assert torch.allclose(found, two(x), atol=1e-6)
    assert torch.allclose(one.running_var, two.running_var, atol=1e-6)
    assert torch.allclose(one(x), two(x), atol=1e-6)


def test_evaluation_mode_is_left_alone_and_everything_is_put_back():
    model = net("batch").eval()
    x = torch.randn(9, 8)
    before = model(x)
    with pytest.raises(RuntimeError), weighted_batch_norm(model, torch.rand(9)):
        assert torch.equal(model(x), before)
        raise RuntimeError
    model.train()
    with weighted_batch_norm(model, torch.ones(9)):
        assert "forward" in vars(model[1])
    assert "forward" not in vars(model[1])


def test_crest_can_train_with_weighted_statistics():
    settings = Training(epochs=3, epoch_size=160, learning_rate=0.1, select_by="accuracy")
    policy = Crest(algorithm="published", batch_size=16, subset=60, statistics="weighted")
    assert fit(net("batch"), toy_splits(), policy, settings).test.accuracy > 0.6


def test_frozen_statistics_are_the_running_ones_and_stay():
    torch.manual_seed(0)
    model, x = net("batch"), torch.randn(9, 8)
    model(x)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with pytest.raises(RuntimeError), frozen_batch_norm(model):
        logits = model(x)
        raise RuntimeError
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert model[1].training
    assert torch.equal(logits, model.eval()(x))


def test_frozen_statistics_are_learned_in_the_warm_up_only():
    """Five tenths of 240 examples are eight mini-batches of 16 (128 of them), then nothing moves."""
    model, examples = net("batch"), toy_splits().train
    policy = Crest(algorithm="published", batch_size=16, subset=60, statistics="frozen", warmup=5)
    objective, optimizer, counts = policy.objective(), sgd(model), []
    objective.prepare(examples)
    curator = Curator(examples, policy, batch_size=16)
    for batch in curator.steps(12, model, optimizer):
        optimizer.zero_grad()
        objective(Forward(model, batch, clock=curator.clock)).backward()
        optimizer.step()
        counts.append(int(model[1].num_batches_tracked))
    assert counts == [*range(1, 9), 8, 8, 8, 8]


def test_choices_are_made_by_the_statistics_that_training_goes_by(monkeypatch):
    used = []
    original = crest.gradient_proxies

    def watched(*arguments, statistics, **options):
        used.append(statistics)
        return original(*arguments, statistics=statistics, **options)

    monkeypatch.setattr(crest, "gradient_proxies", watched)
    settings = Training(epochs=1, epoch_size=192, batch_size=16, learning_rate=0.1, select_by="accuracy")
    fit(net("batch"), toy_splits(), Crest(subset=60, statistics="frozen", warmup=5, every_batch=True), settings)
    assert used == ["batch"] * 8 + ["running"] * 4
