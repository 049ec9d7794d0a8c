import json
import os

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors.torch import load_file
from torch import nn

from holdfast.errors import CheckpointError
from holdfast.training import Run, Training, fit
from holdfast.training.model_card import InputFacts, ModelCard, differences, input_facts
from holdfast.training.weights import load_weights, save_weights, weights_header
from tests.training.toy import toy_model, toy_splits

DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


class Tied(nn.Module):
    """Input and output share one matrix; a view of it and odd buffers besides."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.decoder = nn.Linear(4, 7, bias=False)
        self.decoder.weight = self.embedding.weight
        self.register_buffer("first_rows", self.embedding.weight.detach()[:3])
        self.register_buffer("transposed", torch.arange(6.0).view(2, 3).t())
        self.register_buffer("steps", torch.tensor(5))
        self.register_buffer("nothing", torch.empty(0, 3))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.head = nn.Linear(7, 2)

    def forward(self, x):
        return self.head(self.decoder(self.embedding(x.long().clamp(0, 6))).mean(1))


def shapes():
    return st.lists(st.integers(0, 4), max_size=3)


@given(
    st.dictionaries(st.text("abc./_", min_size=1, max_size=9), st.tuples(st.sampled_from(DTYPES), shapes()), max_size=6)
)
def test_any_state_dict_comes_back_by_a_plain_load(tmp_path_factory, kinds):
    file = tmp_path_factory.mktemp("weights") / "w.safetensors"
    state = {name: torch.randint(0, 2, shape).to(dtype) for name, (dtype, shape) in kinds.items()}
    save_weights(state, file)
    loaded = load_file(file)
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor)


def test_tied_weights_views_and_odd_buffers_load_strictly_into_a_model_that_ties_them_again(tmp_path):
    model, other = Tied(), Tied()
    save_weights(model.state_dict(), tmp_path / "w.safetensors")
    other.load_state_dict(load_file(tmp_path / "w.safetensors"), strict=True)
    assert other.decoder.weight is other.embedding.weight
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


def test_plain_extra_state_is_kept_in_the_header(tmp_path):
    class Counted(nn.Linear):
        extra = 3

        def get_extra_state(self):
            return {"seen": self.extra}

        def set_extra_state(self, state):
            self.extra = state["seen"]

    save_weights(Counted(2, 2).state_dict(), tmp_path / "w.safetensors")
    model = Counted(2, 2)
    model.extra = 0
    model.load_state_dict(load_weights(tmp_path / "w.safetensors"))
    assert model.extra == 3


@pytest.mark.parametrize("entry", [torch.eye(3).to_sparse(), object()])
def test_what_safetensors_can_not_hold_is_refused_and_nothing_is_written(tmp_path, entry):
    with pytest.raises(CheckpointError, match="can't be written as safetensors"):
        save_weights({"a": torch.zeros(1), "b": entry}, tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_leaves_the_old_weights(tmp_path, monkeypatch):
    file = tmp_path / "w.safetensors"
    save_weights({"a": torch.zeros(2)}, file)
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(CheckpointError, match=r"No space left.*unharmed"):
        save_weights({"a": torch.ones(2)}, file)
    assert torch.equal(load_file(file)["a"], torch.zeros(2))
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


@given(cut=st.integers(0, 200))
def test_truncated_weights_are_a_sentence(tmp_path_factory, cut):
    file = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights({"a": torch.zeros(20)}, file, ModelCard(()).to_header())
    file.write_bytes(file.read_bytes()[: -1 - cut])
    for read in (load_weights, weights_header):
        with pytest.raises(CheckpointError, match="truncated, damaged or not a safetensors file"):
            read(file)


def test_a_card_comes_back_from_its_header():
    card = ModelCard(
        (InputFacts("ids", "int64", (5,), 0, 99), InputFacts("m", "bool", ())), ("a", "ü"), "margin", {"x": 1}
    )
    assert ModelCard.from_header(card.to_header()) == card
    assert ModelCard.from_header({"format": "pt"}) is None
    with pytest.raises(CheckpointError, match="damaged"):
        ModelCard.from_header({"holdfast": json.dumps({"inputs": [{"shape": 3}]})})


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(place=st.sampled_from(["", "inputs", "classes", "task", "made", "dtype", "shape", "low"]), value=PLAIN)
def test_a_damaged_card_is_read_or_refused_with_a_sentence(place, value):
    stored = json.loads(ModelCard((InputFacts("x", "int64", (5,), 0, 9),), ("a",)).to_header()["holdfast"])
    if place in stored["inputs"][0]:
        stored["inputs"][0][place] = value
    else:
        stored = {**stored, place: value} if place else value
    try:
        card = ModelCard.from_header({"holdfast": json.dumps(stored)})
        card.describe_inputs()
    except CheckpointError:
        pass


def test_inputs_are_described_as_they_are():
    facts = input_facts({"ids": torch.tensor([[3, 7]]), "x": torch.empty(0, 2, 2)})
    assert facts == (InputFacts("ids", "int64", (2,), 3, 7), InputFacts("x", "float32", (2, 2)))
    assert str(facts[0]) == "ids: int64 of shape (batch, 2) with values from 3 to 7 in training"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((InputFacts("", "float64", (3,)),), None),
        ((InputFacts("", "float32", (4,)),), "shape (4,)"),
        ((InputFacts("", "int64", (3,)),), "int64"),
        ((InputFacts("ids", "float32", (3,)),), "the inputs are ids and the model takes one tensor"),
    ],
)
def test_inputs_that_a_model_can_not_take_are_named(given, said):
    found = differences((InputFacts("", "float32", (3,)),), given)
    assert found is None if said is None else said in found


def test_a_fit_leaves_the_chosen_weights_for_a_plain_load(tmp_path):
    run = Run.create(tmp_path / "run", {})
    result = fit(toy_model(), toy_splits(), None, Training(epochs=3, batch_size=8, learning_rate=0.1), run=run)
    model = toy_model(seed=5)
    model.load_state_dict(load_file(run.path / "weights.safetensors"), strict=True)
    inputs = toy_splits().test.inputs.gather(torch.arange(40))
    with torch.no_grad():
        predicted = model.eval()(inputs).argmax(1)
    assert (predicted == toy_splits().test.labels).float().mean() == pytest.approx(result.test.accuracy)
    assert run.card.classes == toy_splits().train.class_names and run.card.inputs[0].shape == (6,)
    assert run.spec is None and run.has_weights()


@pytest.mark.parametrize(
    "text",
    ["[1]", "3", "null", "{", '{"name": "mlp"}', '{"name": 1, "input_shape": 2}', pytest.param("[" * 99999, id="deep")],
)
def test_a_damaged_model_json_is_a_sentence(tmp_path, text):
    run = Run.create(tmp_path / "run", {})
    (run.path / "model.json").write_text(text)
    with pytest.raises(CheckpointError):
        run.spec  # noqa: B018


def test_a_model_with_tied_weights_is_trained_saved_and_loaded(tmp_path):
    run = Run.create(tmp_path / "run", {})
    result = fit(Tied(), toy_splits(), None, Training(epochs=1), run=run)
    model = Tied()
    model.load_state_dict(load_file(run.path / "weights.safetensors"), strict=True)
    assert all(torch.equal(value, result.model.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_run_that_dies_after_its_weights_ends_with_the_same_weights(tmp_path, monkeypatch):
    def go(path, settings=Training(epochs=2, batch_size=8)):  # noqa: B008 - frozen
        run = Run.open(path) if path.exists() else Run.create(path, {})
        fit(toy_model(), toy_splits(), None, settings, run=run)
        return (path / "weights.safetensors").read_bytes()

    whole = go(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_results", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path / "cut")
    assert Run.open(tmp_path / "cut").status == "interrupted"
    assert go(tmp_path / "cut") == whole
