"""What a loop of one's own leaves out of a method (its loss, its last step), and what is given in place of examples."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from holdfast.data import Examples
from holdfast.errors import ConfigError, DataError, HoldfastWarning
from holdfast.spurious import CvarDRO, DfrTrain, Eiil, GroupBalanced, GroupDRO, Jtt, Lff
from holdfast.training import Curator, Forward, Training, evaluate, fit
from tests.training.toy import toy_model, toy_splits


def _sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def _model():
    """Without dropout, which a loop and `fit` draw differently."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


def _loop(policy, epochs=2, *, own_loss=False):
    model = _model()
    optimizer = _sgd(model)
    curator = Curator(toy_splits().train, policy, batch_size=32, seed=0)
    for _ in curator.epochs(epochs, model, optimizer):
        objective = curator.objective(model, _sgd) if own_loss else None
        for batch in curator:
            if objective is None:
                losses = F.cross_entropy(model(batch.inputs), batch.labels, reduction="none")
                loss = (batch.weights * losses).mean()
            else:
                loss = objective(Forward(model, curator.shared(batch), clock=curator.clock))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@pytest.mark.parametrize(("policy", "name"), [(GroupDRO(), "group-dro"), (CvarDRO(), "cvar"), (Lff(), "lff")])
def test_a_loop_that_leaves_the_methods_loss_out_is_told_once(policy, name):
    with pytest.warns(HoldfastWarning, match=f"{name} has a loss of its own") as caught:
        _loop(policy)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("policy", [GroupDRO(), CvarDRO(), Lff(), Eiil(infer_epoch=1)])
def test_a_loop_with_the_curators_objective_trains_as_fit_does_and_is_not_told(policy):
    with warnings.catch_warnings():
        warnings.simplefilter("error", HoldfastWarning)
        ours = _loop(policy, own_loss=True)
    settings = Training(epochs=2, batch_size=32, learning_rate=0.05, momentum=0.9, seed=0)
    kept = {}

    def keep(event):
        if event.kind == "epoch":
            kept.update({name: value.clone() for name, value in model.state_dict().items()})

    model = _model()
    fit(model, toy_splits(), policy, settings, listeners=[keep])
    assert all(torch.allclose(value, kept[name], atol=1e-5) for name, value in ours.state_dict().items())
    plain = _loop(GroupBalanced()).state_dict()
    assert not all(torch.allclose(value, kept[name], atol=1e-5) for name, value in plain.items())


@pytest.mark.parametrize("policy", [None, GroupBalanced(), Jtt(infer_epoch=1)])
def test_a_method_without_a_loss_is_not_told(policy):
    with warnings.catch_warnings():
        warnings.simplefilter("error", HoldfastWarning)
        _loop(policy)


def test_a_last_step_that_a_curator_does_not_do_is_told():
    with pytest.warns(HoldfastWarning, match="dfr-train changes the model after training"):
        _loop(DfrTrain())


@pytest.mark.parametrize("given", [TensorDataset(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))])
def test_datasets_and_loaders_are_refused_with_what_makes_examples_of_them(given):
    for one in (given, DataLoader(given)):
        with pytest.raises(ConfigError, match=r"examples must be Examples, which Examples\.of\(dataset\)"):
            Curator(one, GroupBalanced())
        with pytest.raises(ConfigError, match=r"examples must be Examples, which Examples\.of\(dataset\)"):
            evaluate(toy_model(), one)


class _Failing(Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, item):
        return torch.zeros(2), item % 2 if item != 7 else 1 // 0


def test_an_error_in_somebodys_item_names_the_item_and_keeps_the_cause():
    with pytest.raises(DataError, match=r"item 7 of the 9 of the data set can't be read .ZeroDivisionError") as caught:
        Examples.of(_Failing())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
