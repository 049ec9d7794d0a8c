import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.multimodal.backends.cached_weights import cached_weights, weights_file
from holdfast.multimodal.backends.towers import load_tower
from holdfast.multimodal.tasks.shapes.tower import shapes_tower


def test_weights_are_made_once_per_recipe(tmp_path):
    made = []

    def weights_of(version, rate):
        module = nn.Linear(2, 2)

        def make():
            made.append((version, rate))
            nn.init.constant_(module.weight, version * rate)

        cached_weights(module, tmp_path, "line", make, version=version, rate=rate)
        return module.weight

    first, again, other, newer = weights_of(1, 0.5), weights_of(1, 0.5), weights_of(1, 0.25), weights_of(2, 0.5)
    assert made == [(1, 0.5), (1, 0.25), (2, 0.5)]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, newer)


def test_a_file_is_named_by_its_recipe_alone():
    """A name from the source code would change with every reworded docstring; this one is written down."""
    name = weights_file("line", 1, {"rate": 0.5, "epochs": 3})
    assert name == "line-v1-7f4fb7dc7ecd.safetensors"
    assert name == weights_file("line", 1, {"epochs": 3, "rate": 0.5})
    others = [
        ("line", 2, {"rate": 0.5, "epochs": 3}),
        ("line", 1, {"rate": 0.5, "epochs": 4}),
        ("line", 1, {"rate": 0.5}),
    ]
    assert len({name, *(weights_file(*other) for other in others)}) == 4


def test_what_fails_leaves_no_file(tmp_path):
    def fail():
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cached_weights(nn.Linear(1, 1), tmp_path, "line", fail, version=1)
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="set HOLDFAST_DATA to one of yours"):
        cached_weights(nn.Linear(1, 1), tmp_path / "file", "line", lambda: None, version=1)


def test_a_tower_is_the_same_from_its_file_and_knows_every_word(tmp_path):
    epochs = []
    first = shapes_tower(tmp_path, 3, pairs=128, epochs=1, progress=lambda *event: epochs.append(event[:2]))
    again = shapes_tower(tmp_path, 3, pairs=128, epochs=1, progress=lambda *event: epochs.append(event[:2]))
    assert epochs == [(1, 1)]
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items())
    assert 1 not in first.tokenize(["a picture of a disc on sand.", "look at the shape on brick."])
    assert not first.training


def test_a_tower_of_open_clip_needs_its_weights(tmp_path):
    with pytest.raises(ConfigError, match="lacks its weights; write open_clip:MODEL:WEIGHTS"):
        load_tower("open_clip:RN50", tmp_path)
