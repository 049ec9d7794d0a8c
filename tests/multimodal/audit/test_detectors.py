import sys

import numpy as np
import pytest
import torch

from holdfast.errors import DataError, MissingDependencyError
from holdfast.multimodal import Detections, OwlVit, credited_words, load_owl_vit
from tests.multimodal.backends.hub import clip_config, letters, save_tokenizer

transformers = pytest.importorskip("transformers")

WORDS = ("baby", "can", "hand", "ring", "pencil")


def save_owl(folder):
    config = clip_config()
    text = {**config.text_config.to_dict(), "pad_token_id": letters()["<|endoftext|>"]}
    owl = transformers.OwlViTConfig(text_config=text, vision_config=config.vision_config.to_dict(), projection_dim=16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.OwlViTForObjectDetection(owl)
        for parameter in model.class_head.parameters():
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    save_tokenizer(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("owl")
    save_owl(folder)
    return folder


@pytest.fixture(scope="module")
def images():
    return torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def as_set(found):
    rows = zip(found.images.tolist(), found.words.tolist(), found.scores.tolist(), found.boxes.tolist(), strict=True)
    return sorted((image, word, round(score, 4), *(round(side, 3) for side in box)) for image, word, score, box in rows)


def test_boxes_and_scores_are_those_of_the_library(folder, images):
    detector = load_owl_vit(folder, threshold=0.5)
    detections = detector.detect(images, WORDS)
    model = transformers.OwlViTForObjectDetection.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(
        [f"a photo of a {word}" for word in WORDS],
        padding="max_length",
        truncation=True,
        max_length=16,
        return_tensors="pt",
    )
    expected = []
    for number, image in enumerate(images):
        with torch.no_grad():
            output = model(pixel_values=detector.preprocessing(image)[None], **batch)
        for patch, word in (output.logits[0].sigmoid() >= 0.5).nonzero().tolist():
            x, y, width, height = output.pred_boxes[0, patch].tolist()
            sides = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            score = float(output.logits[0, patch, word].sigmoid())
            expected.append((number, word, round(score, 4), *(round(min(max(side, 0), 1), 3) for side in sides)))
    ours = as_set(detections)
    assert 0 < len(ours) < 5 * 16 * 5
    assert len(ours) == len(expected)
    assert np.allclose(np.array(ours), np.array(sorted(expected)), atol=2e-3)


def test_chunks_of_words_and_images_change_nothing(folder, images):
    detector = load_owl_vit(folder, threshold=0.5)
    whole = as_set(detector.detect(images, WORDS))
    detector.words_at_once, detector.batch_size = 2, 3
    assert as_set(detector.detect(images, WORDS)) == whole


def test_detections_become_a_table_of_attributes():
    detections = Detections(
        torch.tensor([0, 0, 2, 2]), torch.tensor([1, 1, 0, 2]), torch.tensor([0.05, 0.3, 0.1, 0.09]), torch.zeros(4, 4)
    )
    shown = detections.attributes(WORDS[:3], 3).present.tolist()
    assert shown == [[False, True, False], [False] * 3, [True, False, False]]
    assert detections.attributes(WORDS[:3], 3, threshold=0.2).present.sum() == 1


def test_the_word_is_credited_whose_box_the_map_covers_best():
    maps = torch.zeros(3, 8, 8)
    maps[0, :4, :4] = 1
    maps[1, 4:, 4:] = 1
    boxes = torch.tensor([[0, 0, 0.5, 0.5], [0, 0, 1, 1], [0, 0, 0.5, 0.5], [0, 0, 1, 1.0]])
    detections = Detections(torch.tensor([0, 0, 1, 2]), torch.tensor([3, 1, 2, 0]), torch.ones(4), boxes)
    assert credited_words(detections, maps).tolist() == [3, -1, -1]
    overlap = [16 / (16 + 16), 16 / (64 + 16)]
    assert overlap[0] > overlap[1]


def test_nothing_to_look_for_is_refused(folder, images):
    with pytest.raises(DataError, match="5 images and 0 words"):
        load_owl_vit(folder).detect(images, [])


def test_half_precision_becomes_single(folder):
    model = transformers.OwlViTForObjectDetection.from_pretrained(folder).half()
    detector = OwlVit(model, transformers.AutoTokenizer.from_pretrained(folder))
    assert {parameter.dtype for parameter in detector.model.parameters()} == {torch.float32}


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[multimodal\]"):
        load_owl_vit()
