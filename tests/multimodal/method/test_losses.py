import math

import pytest
import torch
import torch.nn.functional as F

from holdfast.errors import DataError
from holdfast.multimodal.method.losses import (
    clip_loss,
    contrast_within,
    contrastive_image_loss,
    contrastive_language_loss,
    entries_of,
    group_contrast,
    spurious_image_loss,
    spurious_language_loss,
)
from tests.multimodal.toy import units

LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 2, 2, 1, 0])


def contrast_by_loops(embeddings, groups, scale):
    """Supervised contrast, "out" form, an anchor and a positive at a time, in double precision."""
    rows, of_anchors = embeddings.double().tolist(), []

    def cosine(i, j):
        return scale * sum(a * b for a, b in zip(rows[i], rows[j], strict=True))

    for i in range(len(rows)):
        others = [j for j in range(len(rows)) if j != i]
        positives = [j for j in others if groups[j] == groups[i]]
        if positives:
            total = math.log(sum(math.exp(cosine(i, j)) for j in others))
            of_anchors.append(sum(total - cosine(i, p) for p in positives) / len(positives))
    return sum(of_anchors) / len(of_anchors)


def test_clip_loss_is_both_directions_by_loops():
    images, texts = units(7, 5), units(7, 5, seed=1)
    logits = (9.0 * images.double() @ texts.double().T).tolist()
    rows = [math.log(sum(map(math.exp, row))) - row[i] for i, row in enumerate(logits)]
    columns = [math.log(sum(math.exp(row[i]) for row in logits)) - logits[i][i] for i in range(7)]
    expected = (sum(rows) + sum(columns)) / 14
    assert float(clip_loss(images, texts, 9.0)) == pytest.approx(expected, abs=1e-6)


def test_clip_loss_of_equal_embeddings_is_log_n():
    same = units(1, 6).expand(13, 6)
    assert float(clip_loss(same, same, 30.0)) == pytest.approx(math.log(13), abs=1e-5)


@pytest.mark.parametrize(
    ("counts", "bound"), [((64, 64), 4.158883), ((3, 7, 1), (3 * math.log(3) + 7 * math.log(7)) / 11)]
)
def test_repeated_captions_bound_the_clip_loss_from_below(counts, bound):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    perfect = torch.eye(len(counts))[labels]
    assert float(clip_loss(perfect, perfect, 100.0)) == pytest.approx(bound, abs=1e-4)
    for seed in range(5):
        texts = units(len(counts), 4, seed=seed)[labels]
        assert float(clip_loss(units(len(labels), 4, seed=seed + 9), texts, 20.0)) >= bound


def test_contrast_equals_the_loops():
    embeddings = units(10, 4)
    expected = contrast_by_loops(embeddings, LABELS.tolist(), 1 / 0.07)
    assert float(contrast_within(embeddings, LABELS, 1 / 0.07)) == pytest.approx(expected, abs=1e-5)


def test_anchors_without_a_positive_are_left_out():
    embeddings, groups = units(6, 4), torch.tensor([0, 0, 1, 1, 2, 3])
    expected = contrast_by_loops(embeddings, groups.tolist(), 5.0)
    assert float(contrast_within(embeddings, groups, 5.0)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("n", [1, 3])
def test_a_batch_without_any_positive_has_loss_and_gradient_zero(n):
    embeddings = units(n, 4).requires_grad_()
    loss = contrast_within(embeddings, torch.arange(n), 5.0)
    loss.backward()
    assert float(loss.detach()) == 0
    assert embeddings.grad.eq(0).all()


def test_contrast_agrees_with_pytorch_metric_learning():
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        embeddings = F.normalize(torch.randn(20, 8, generator=generator), dim=1)
        labels = torch.cat([torch.arange(4), torch.arange(4), torch.randint(4, (12,), generator=generator)])
        theirs = losses.SupConLoss(temperature=0.07)(embeddings, labels)
        assert float(contrast_within(embeddings, labels, 1 / 0.07)) == pytest.approx(float(theirs), abs=1e-5)


def test_equal_embeddings_give_the_logarithm_of_the_number_of_candidates():
    same = units(1, 5).expand(9, 5)
    positives = torch.zeros(9, 9, dtype=torch.bool)
    positives[:, :3] = True
    candidates = torch.zeros_like(positives)
    candidates[:, :7] = True
    assert float(group_contrast(same, same, positives, candidates, 20.0)) == pytest.approx(math.log(3 + 4), abs=1e-5)


def test_one_positive_makes_it_infonce():
    anchors, others = units(6, 5), units(6, 5, seed=1)
    loss = group_contrast(anchors, others, torch.eye(6) > 0, torch.ones(6, 6) > 0, 7.0)
    assert float(loss) == pytest.approx(float(F.cross_entropy(7.0 * anchors @ others.T, torch.arange(6))), abs=1e-6)


def test_log_of_the_positives_is_the_lower_bound_and_is_reached():
    groups = torch.arange(3).repeat_interleave(5)
    for seed in range(5):
        assert float(contrast_within(units(15, 6, seed=seed), groups, 12.0)) >= math.log(4)
    apart = torch.eye(3)[groups]
    assert float(contrast_within(apart, groups, 200.0)) == pytest.approx(math.log(4), abs=1e-5)


def test_the_gradient_is_the_softmax_mean_minus_the_mean_of_positives():
    anchors, others = units(4, 3, dtype=torch.float64).requires_grad_(), units(9, 3, seed=1, dtype=torch.float64)
    positives = torch.zeros(4, 9, dtype=torch.bool)
    positives[:, :2] = True
    group_contrast(anchors, others, positives, torch.ones_like(positives), 6.0).backward()
    expected = 6.0 * ((6.0 * anchors.detach() @ others.T).softmax(1) @ others - others[:2].mean(0)) / 4
    assert torch.allclose(anchors.grad, expected, atol=1e-5)


@pytest.mark.parametrize("loss", [contrastive_image_loss, spurious_image_loss])
def test_order_and_rotation_of_the_batch_do_not_matter(loss):
    embeddings, order = units(10, 4), torch.randperm(10, generator=torch.Generator().manual_seed(5))
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(6))).Q
    expected = float(loss(embeddings, LABELS, 8.0))
    assert float(loss(embeddings[order], LABELS[order], 8.0)) == pytest.approx(expected, abs=1e-5)
    assert float(loss(embeddings @ rotation, LABELS, 8.0)) == pytest.approx(expected, abs=1e-5)
    images, texts = units(8, 4), units(8, 4, seed=2)
    rotated = clip_loss(images @ rotation, texts @ rotation, 8.0)
    assert float(rotated) == pytest.approx(float(clip_loss(images, texts, 8.0)), abs=1e-5)


def test_language_terms_take_classes_for_classes_and_templates_for_templates():
    """The release pairs embeddings in the order of templates with labels in the order of classes."""
    by_class = torch.eye(3)[:, None].expand(3, 4, 3)
    by_template = torch.eye(4)[None].expand(3, 4, 4)
    assert float(contrastive_language_loss(by_class, 300.0)) == pytest.approx(math.log(3), abs=1e-5)
    assert float(contrastive_language_loss(by_template, 300.0)) > 100
    assert entries_of(by_class).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert torch.equal(by_class.flatten(0, 1).argmax(1), entries_of(by_class))


def test_the_spurious_language_term_groups_by_attribute_whatever_the_class():
    by_attribute = torch.eye(2)[None, :, None].expand(3, 2, 4, 2)
    by_class = torch.eye(3)[:, None, None].expand(3, 2, 4, 3)
    assert float(spurious_language_loss(by_attribute, 300.0)) == pytest.approx(math.log(11), abs=1e-5)
    assert float(spurious_language_loss(by_class, 300.0)) > 100
    prompts = units(3, 2, 4, 6)
    rows = [prompts[c, a, t] for c in range(3) for a in range(2) for t in range(4)]
    groups = [a for _ in range(3) for a in range(2) for _ in range(4)]
    expected = contrast_by_loops(torch.stack(rows), groups, 9.0)
    assert float(spurious_language_loss(prompts, 9.0)) == pytest.approx(expected, abs=1e-5)


def test_half_precision_is_summed_in_single():
    embeddings = units(10, 4)
    half = contrast_within(embeddings.half(), LABELS, 100.0)
    assert half.dtype == torch.float32
    assert float(half) == pytest.approx(float(contrast_within(embeddings.half().float(), LABELS, 100.0)), abs=1e-5)


def test_groups_that_do_not_fit_are_named():
    with pytest.raises(DataError, match=r"10 embeddings and groups of shape \(9,\)"):
        contrast_within(units(10, 4), LABELS[:9], 1.0)
