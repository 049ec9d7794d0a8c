import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.multimodal.backends.cached_weights import cached_weights
from holdfast.multimodal.backends.towers import load_tower
from holdfast.multimodal.tasks.shapes import images as shapes
from holdfast.multimodal.tasks.shapes.tower import shapes_tower


def test_weights_are_made_once_per_recipe(tmp_path):
    made = []

    def ask(rate):
        module = nn.Linear(2, 2)

        def make():
            made.append(rate)
            nn.init.constant_(module.weight, rate)

        cached_weights(module, tmp_path, "line", [shapes], make, rate=rate)
        return module.weight

    first, again, other = ask(0.5), ask(0.5), ask(0.25)
    assert made == [0.5, 0.25]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_fails_leaves_no_file(tmp_path):
    def fail():
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cached_weights(nn.Linear(1, 1), tmp_path, "line", [], fail)
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="set HOLDFAST_DATA to one of yours"):
        cached_weights(nn.Linear(1, 1), tmp_path / "file", "line", [], lambda: None)


def test_a_tower_is_the_same_from_its_file_and_knows_every_word(tmp_path):
    told = []
    first = shapes_tower(tmp_path, 3, pairs=128, epochs=1, progress=lambda *said: told.append(said[:2]))
    again = shapes_tower(tmp_path, 3, pairs=128, epochs=1, progress=lambda *said: told.append(said[:2]))
    assert told == [(1, 1)]
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items())
    assert 1 not in first.tokenize(["a picture of a disc on sand.", "look at the shape on brick."])
    assert not first.training


def test_a_tower_of_open_clip_needs_its_weights(tmp_path):
    with pytest.raises(ConfigError, match="lacks its weights; write open_clip:MODEL:WEIGHTS"):
        load_tower("open_clip:RN50", tmp_path)
