from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.data import Splits
from holdfast.errors import ConfigError
from holdfast.poisoning.attacks import staggered_surrogates, train_surrogate
from holdfast.poisoning.attacks.crafting.last_epoch import fit_to_the_end
from holdfast.poisoning.attacks.crafting.surrogates import features_at
from holdfast.training import Curator, Run, Training
from tests.poisoning.attacks.toy import tiny_examples, tiny_net

SETTINGS = Training(epochs=3, batch_size=8, learning_rate=0.05, momentum=0.0, threads=1)


def test_features_are_the_inputs_of_the_head_and_outputs_of_layers():
    model, x = tiny_net(), tiny_examples(4).inputs.values
    features, maps = features_at(model, x, ("2",))
    torch.testing.assert_close(features, model[:-1](x))
    torch.testing.assert_close(maps, model[:3](x))
    assert features.requires_grad and not model[2]._forward_hooks
    shared = nn.Tanh()
    twice = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), shared, nn.Linear(4, 4), shared, nn.Linear(4, 2))
    with pytest.raises(ConfigError, match="run 2 times"):
        features_at(twice, x, ("2",))


def test_a_surrogate_is_trained_to_the_last_epoch_as_a_plain_loop_would():
    train, model, plain = tiny_examples(30), tiny_net(), tiny_net()
    train_surrogate(model, train, SETTINGS)
    curator = Curator(train, batch_size=8, seed=0)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05)
    for _ in curator.epochs(3, plain, optimizer):
        plain.train()
        for x, y, _, _ in curator:
            optimizer.zero_grad()
            F.cross_entropy(plain(x), y).backward()
            optimizer.step()
    for mine, wanted in zip(model.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, wanted)


def test_the_last_weights_are_kept_whatever_validation_says_with_a_run_too(tmp_path):
    train, other = tiny_examples(30), tiny_examples(9, seed=4)
    parts = Splits("toy", train, other, other)
    kept, last = tiny_net(), tiny_net()
    fit_to_the_end(kept, parts, None, replace(SETTINGS, epochs=6))
    train_surrogate(last, train, replace(SETTINGS, epochs=6))
    assert all(torch.equal(a, b) for a, b in zip(kept.state_dict().values(), last.state_dict().values(), strict=True))
    Run.create(tmp_path / "run", {})
    for _ in range(2):
        stored = tiny_net()
        fit_to_the_end(stored, parts, None, replace(SETTINGS, epochs=6), run=Run.open(tmp_path / "run"))
        assert torch.equal(stored[0].weight, last[0].weight)


def test_staggered_surrogates_stand_at_different_epochs():
    train = tiny_examples(30)
    surrogates = staggered_surrogates(tiny_net, train, replace(SETTINGS, epochs=6), 3)
    steps = [int(model[1].num_batches_tracked) for model in surrogates]
    assert steps == [0, 8, 16]
    again = staggered_surrogates(tiny_net, train, replace(SETTINGS, epochs=6), 3)
    assert all(torch.equal(a[0].weight, b[0].weight) for a, b in zip(surrogates, again, strict=True))
    assert not torch.equal(surrogates[1][-1].weight, surrogates[2][-1].weight)
