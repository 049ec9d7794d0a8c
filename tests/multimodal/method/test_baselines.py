"""Methods of other rooms are handed in here, as the command line does it."""

from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.multimodal import FineTunedClip, PromptClassifier, Terms, fine_tune, linear_probe, probe_splits, zero_shot
from holdfast.spurious import DfrTrain, GroupDRO
from holdfast.training import CrossEntropy, Method, Training, fit
from holdfast.training.method import as_method
from tests.multimodal.toy import TWO_TEMPLATES, small_tower, tiny_task

SETTINGS = Training(epochs=3, batch_size=10, learning_rate=0.05, threads=1)


def test_zero_shot_counts_what_the_classifier_gets_right():
    tower = small_tower()
    splits = tiny_task(tower).splits
    report = zero_shot(tower, TWO_TEMPLATES, splits.test, splits.train)
    images, labels = splits.test.gather(torch.arange(32))
    with torch.no_grad():
        right = PromptClassifier.of(tower, TWO_TEMPLATES)(images).argmax(1) == labels
    for g, score in enumerate(report.by_group):
        assert score.accuracy == pytest.approx(float(right[splits.test.groups == g].float().mean()))
    assert [score.train_count for score in report.by_group] == [24, 6, 4, 16]


def test_erm_is_cross_entropy_on_zero_shot_logits():
    tower = small_tower()
    splits = tiny_task(tower).splits
    one_step = replace(SETTINGS, epochs=1, batch_size=len(splits.train), momentum=0.0)
    expected = small_tower()
    inputs, labels = splits.train.gather(torch.arange(len(splits.train)))
    loss = torch.nn.functional.cross_entropy(PromptClassifier.of(expected, TWO_TEMPLATES)(inputs), labels)
    loss.backward()
    with torch.no_grad():
        expected.from_image.weight -= 0.05 * expected.from_image.weight.grad
    fine_tune(tower, splits, TWO_TEMPLATES, None, one_step)
    assert torch.allclose(tower.from_image.weight, expected.from_image.weight, atol=1e-5)


def test_group_dro_on_one_group_is_cross_entropy_on_the_same_draws():
    one, other = small_tower(), small_tower()
    splits = tiny_task(one).splits
    alone = replace(splits, **{
        part: getattr(splits, part).with_groups(torch.zeros(len(getattr(splits, part)), dtype=int), ["all"])
        for part in ("train", "validation", "test")
    })  # fmt: skip
    fine_tune(one, alone, TWO_TEMPLATES, GroupDRO(eta_q=1.0), SETTINGS)
    fine_tune(other, alone, TWO_TEMPLATES, Method(FineTunedClip(), CrossEntropy()), SETTINGS)
    assert torch.allclose(one.from_image.weight, other.from_image.weight, atol=1e-6)


def test_group_dro_follows_the_worst_group():
    tower = small_tower()
    splits = tiny_task(tower).splits
    method = as_method(GroupDRO(eta_q=1.0))
    result = fine_tune(tower, splits, TWO_TEMPLATES, method, SETTINGS)
    weights = method.objective.q
    assert float(weights.sum()) == pytest.approx(1, abs=1e-6)
    assert float(weights.max()) > 0.3
    assert len(result.history) == 3


def test_fine_tuned_clip_is_clip_s_loss_without_further_terms():
    loss = FineTunedClip().objective()
    assert loss.terms == Terms(lambda_vc=0, lambda_lc=0, lambda_vs=0, lambda_ls=0)
    with pytest.raises(ConfigError, match="sampling can't be 'even'"):
        FineTunedClip("even").objective()


def test_a_probe_and_dfr_work_on_frozen_embeddings():
    tower = small_tower()
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    splits = probe_splits(tower, tiny_task(tower).splits)
    embeddings, _ = splits.train.gather(torch.arange(50))
    assert embeddings.shape == (50, 16)
    assert torch.allclose(embeddings.norm(dim=1), torch.ones(50), atol=1e-6)
    head = linear_probe(splits)
    assert torch.equal(head.weight, linear_probe(splits).weight)
    result = fit(head, splits, DfrTrain(fits=2, C=(1.0,)), replace(SETTINGS, learning_rate=1.0))
    assert result.test.worst_accuracy >= 0
    assert all(torch.equal(value, before[name]) for name, value in tower.state_dict().items())
