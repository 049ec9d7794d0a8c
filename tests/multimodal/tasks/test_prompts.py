import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.multimodal import TEMPLATES, PromptClassifier, Wording
from holdfast.multimodal.tasks.prompts import ensemble, filled
from tests.multimodal.toy import TWO_TEMPLATES, small_tower, units


def test_there_are_eighty_different_templates_with_one_slot_each():
    assert len(TEMPLATES) == len(set(TEMPLATES)) == 80
    assert all(template.count("{}") == 1 for template in TEMPLATES)
    assert all("{" not in text and "kelp" in text for text in filled(TEMPLATES, "kelp"))


def test_the_ensemble_is_the_mean_direction_of_unit_length():
    prompts = units(3, 5, 4)
    weights = ensemble(prompts)
    assert torch.allclose(weights.norm(dim=1), torch.ones(3))
    for c in range(3):
        mean = prompts[c].sum(0)
        assert torch.allclose(weights[c], mean / mean.norm(), atol=1e-6)


def test_every_family_has_its_prompts_in_its_shape():
    tower = small_tower()
    tokens = TWO_TEMPLATES.tokens(tower)
    assert {family: tuple(part.shape) for family, part in tokens.items()} == {
        "classes": (2, 2, 12), "words": (2, 2, 12), "pairs": (2, 2, 2, 12), "attributes": (2, 2, 12),
    }  # fmt: skip
    pictures = ["a picture of a square.", "an image showing a square."]
    assert torch.equal(tokens["classes"][1], tower.tokenize(pictures))
    assert torch.equal(
        tokens["pairs"][1, 0], tower.tokenize([text.replace("square", "square on sand") for text in pictures])
    )


def test_an_absent_attribute_leaves_the_class_alone():
    wording = Wording(("baby pacifier", "water bottle"), ("", "baby"), joined="{} with a {}")
    assert wording.phrases("words") == [["baby"]]
    assert wording.phrases("pairs") == [
        ["baby pacifier", "baby pacifier with a baby"],
        ["water bottle", "water bottle with a baby"],
    ]
    assert wording.families == ("classes", "words", "pairs")
    assert Wording(("a", "b")).families == ("classes",)


def test_braces_in_names_are_letters():
    assert Wording(("{x}", "y"), templates=("see {}",)).phrases("classes") == [["{x}"], ["y"]]
    assert filled(["see {} {0}"], "{1}") == ["see {1} {0}"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"templates": ("no slot",)}, "'no slot' has 0 slots; write {} in it 1 times"),
        ({"joined": "{}"}, "'{}' has 1 slots; write {} in it 2 times"),
        ({"templates": ()}, "no templates"),
        ({"class_names": ("disc", "")}, "a class has no name"),
    ],
)
def test_wordings_that_say_nothing_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message.replace("{", r"\{").replace("}", r"\}")):
        Wording(**{"class_names": ("disc", "square"), **changes})


def test_the_zero_shot_classifier_is_the_scaled_cosine_with_the_ensemble():
    tower = small_tower()
    images = torch.randn(5, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    classifier = PromptClassifier.of(tower, TWO_TEMPLATES)
    with torch.no_grad():
        logits = classifier(images)
        for c, name in enumerate(("disc", "square")):
            texts = tower.encode_text(tower.tokenize(filled(TWO_TEMPLATES.templates, name)))
            direction = texts.mean(0) / texts.mean(0).norm()
            expected = tower.logit_scale.exp() * tower.encode_image(images) @ direction
            assert torch.allclose(logits[:, c], expected, atol=1e-4)


def test_prompts_that_the_wording_lacks_are_named():
    classifier = PromptClassifier.of(small_tower(), Wording(("disc", "square"), templates=("a {}",)))
    with pytest.raises(ConfigError, match="nothing for the prompts 'pairs'; give it spurious_words"):
        classifier.prompts("pairs")
