import pytest
import torch

from holdfast.errors import DataError
from holdfast.poisoning.attacks import random_bases, similar_bases, steepest_bases
from holdfast.primitives.per_example import per_example_gradients
from tests.poisoning.attacks.toy import tiny_examples, tiny_net


def test_random_bases_are_of_the_class_without_repetition_and_by_seed():
    train = tiny_examples(60)
    drawn = random_bases(train, 2, 8, seed=1)
    assert (train.labels[drawn] == 2).all() and len(drawn.unique()) == 8
    assert torch.equal(drawn, random_bases(train, 2, 8, seed=1))
    assert not torch.equal(drawn, random_bases(train, 2, 8, seed=2))


def test_the_steepest_have_the_largest_gradients_over_all_networks(monkeypatch):
    monkeypatch.setattr("holdfast.poisoning.attacks.crafting.bases._CHUNK", 3)
    train, models = tiny_examples(60), [tiny_net(0).train(), tiny_net(1)]
    bases = steepest_bases(models, train, 1, 6)
    assert models[0].training
    x, y = train.gather(torch.arange(60))
    norms = sum(per_example_gradients(model.eval(), x, y).norm(dim=1) for model in models)
    norms[train.labels != 1] = -1
    assert bases.tolist() == sorted(norms.topk(6).indices.tolist())


def test_similar_bases_are_neighbours_of_one_of_them():
    train, model = tiny_examples(60), tiny_net()
    bases = similar_bases(model, train, 0, 5, seed=3)
    features = model[:-1](train.inputs.values).detach()
    mine = (train.labels == 0).nonzero().flatten()
    neighbourhoods = []
    for one in mine:
        order = (features[mine] - features[one]).norm(dim=1).argsort()
        neighbourhoods.append(sorted(mine[order[:5]].tolist()))
    assert bases.tolist() in neighbourhoods


def test_more_bases_than_there_are_is_refused():
    for choose in (
        lambda n: random_bases(tiny_examples(), 1, n, 0),
        lambda n: steepest_bases(tiny_net(), tiny_examples(), 1, n),
    ):
        with pytest.raises(DataError, match="9 bases are wanted and class 1 has 8"):
            choose(9)
        with pytest.raises(DataError, match="0 bases"):
            choose(0)
