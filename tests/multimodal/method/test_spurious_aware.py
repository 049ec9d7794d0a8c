import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError, DataError
from holdfast.multimodal import PromptClassifier, SpuriousAware
from holdfast.multimodal.method.losses import (
    clip_loss,
    contrastive_image_loss,
    contrastive_language_loss,
    spurious_image_loss,
    spurious_language_loss,
)
from holdfast.multimodal.method.release_losses import (
    attribute_cross_entropy,
    contrastive_image_penalty,
    contrastive_language_penalty,
    decorrelation_penalty,
)
from holdfast.multimodal.tasks.prompts import ensemble
from holdfast.training import Batch, Forward
from tests.multimodal.toy import TWO_TEMPLATES, small_tower, tiny_task


@pytest.fixture(scope="module")
def scene():
    """A classifier, a training set, and the embeddings of its first batch."""
    tower = small_tower()
    train = tiny_task(tower).splits.train
    classifier = PromptClassifier.of(tower, TWO_TEMPLATES)
    return classifier, train


def forward(classifier, train, weighted=False, n=20):
    positions = torch.arange(n)
    inputs, labels = train.gather(positions)
    return Forward(classifier, Batch(inputs, labels, positions, torch.ones(n)), weighted=weighted)


def terms(scene, method):
    classifier, train = scene
    objective = method.objective()
    objective.prepare(train)
    step = forward(classifier, train)
    losses = objective.weighted(step)
    assert torch.allclose(objective(step), sum(losses.values()))
    return {name: value.detach() for name, value in losses.items()}


def embedded(scene):
    classifier, train = scene
    inputs, labels = train.gather(torch.arange(20))
    with torch.no_grad():
        prompts = {family: classifier.prompts(family) for family in classifier.families}
        return classifier.tower.encode_image(inputs), labels, train.attributes[:20], prompts, classifier.tower.scale()


def test_the_terms_of_the_equations_are_the_pure_functions(scene):
    images, labels, values, prompts, scale = embedded(scene)
    expected = {
        "clip": clip_loss(images, ensemble(prompts["classes"])[labels], scale),
        "vc": contrastive_image_loss(images, labels, scale),
        "lc": 0.5 * contrastive_language_loss(prompts["classes"], scale),
        "vs": 2 * spurious_image_loss(images, values, scale),
        "ls": spurious_language_loss(prompts["pairs"], scale),
    }
    losses = terms(scene, SpuriousAware(lambda_lc=0.5, lambda_vs=2))
    assert list(losses) == list(expected)
    assert all(torch.allclose(losses[name], expected[name], atol=1e-5) for name in expected)


def test_the_terms_of_the_release_are_the_pure_functions(scene):
    images, labels, values, prompts, scale = embedded(scene)
    expected = {
        "clip": clip_loss(images, ensemble(prompts["classes"])[labels], scale),
        "vc": contrastive_image_penalty(images, labels),
        "lc": contrastive_language_penalty(prompts["classes"]),
        "vs": attribute_cross_entropy(images, ensemble(prompts["attributes"]), values, scale),
        "ls": decorrelation_penalty(prompts["classes"], prompts["words"]),
    }
    losses = terms(scene, SpuriousAware(form="release", lambda_vs=1))
    assert all(torch.allclose(losses[name], expected[name], atol=1e-5) for name in expected)
    diagonal = terms(scene, SpuriousAware(form="release", language="decorrelate-same-template"))["ls"]
    assert torch.allclose(diagonal, decorrelation_penalty(prompts["classes"], prompts["words"], same_template=True))


def test_options_of_the_equations(scene):
    images, labels, values, prompts, _ = embedded(scene)
    fixed = terms(scene, SpuriousAware(tau=0.07, lambda_vs=1, positives="group"))
    assert torch.allclose(fixed["vc"], contrastive_image_loss(images, labels, 1 / 0.07), atol=1e-5)
    assert torch.allclose(fixed["vs"], spurious_image_loss(images, labels * 2 + values, 1 / 0.07), atol=1e-5)
    pushed = terms(scene, SpuriousAware(language="decorrelate"))["ls"]
    assert torch.allclose(pushed, decorrelation_penalty(prompts["classes"], prompts["words"]), atol=1e-6)


def test_terms_that_are_off_cost_nothing_and_are_off(scene):
    """An operator slip in the release turns its language term on whenever a run is logged."""
    assert list(terms(scene, SpuriousAware(lambda_vc=0, lambda_lc=0, lambda_ls=0))) == ["clip"]
    assert list(terms(scene, SpuriousAware())) == ["clip", "vc", "lc", "ls"]


def test_the_temperature_of_the_terms_is_trained_with_clips(scene):
    classifier, train = scene
    objective = SpuriousAware().objective()
    objective.prepare(train)
    classifier.zero_grad()
    objective.weighted(forward(classifier, train))["vc"].backward()
    assert float(classifier.tower.logit_scale.grad) != 0
    classifier.zero_grad()


def test_what_makes_no_sense_is_refused(scene):
    classifier, train = scene
    for options, message in (
        ({"form": "sc"}, "form of spurious-aware can't be 'sc'; did you mean 'cs'"),
        ({"lambda_vc": -1}, "lambda_vc of spurious-aware is -1; give 0 or more"),
        ({"tau": 0}, "tau of spurious-aware is 0"),
        ({"sampling": "even"}, "sampling can't be 'even'"),
        ({"language": "orthogonal"}, "language of spurious-aware can't be"),
    ):
        with pytest.raises(ConfigError, match=message):
            SpuriousAware(**options)
    with pytest.raises(ConfigError, match="can't weigh them; weigh draws"):
        SpuriousAware().objective()(forward(classifier, train, weighted=True))
    with pytest.raises(ConfigError, match="trains a PromptClassifier and was given a Linear"):
        SpuriousAware().objective()(forward(nn.Linear(2, 2), train))
    with pytest.raises(ConfigError, match="has not seen the training set"):
        SpuriousAware(lambda_vs=1).objective()(forward(classifier, train))


def test_the_release_needs_a_phrase_for_every_value(scene):
    classifier, train = scene
    few = PromptClassifier(classifier.tower, {
        "classes": classifier.inputs("classes"), "attributes": classifier.inputs("attributes")[:1],
    })  # fmt: skip
    objective = SpuriousAware(form="release", lambda_vs=1, lambda_ls=0).objective()
    objective.prepare(train)
    with pytest.raises(DataError, match="1 attribute phrases and the data at least 2 attribute values"):
        objective(forward(few, train))
