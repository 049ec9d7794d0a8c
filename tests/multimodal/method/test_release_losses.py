import pytest
import torch
import torch.nn.functional as F

from holdfast.errors import DataError
from holdfast.multimodal.method.release_losses import (
    attribute_cross_entropy,
    class_penalty,
    contrastive_image_penalty,
    contrastive_language_penalty,
    decorrelation_penalty,
)
from tests.multimodal.toy import units


def penalty_by_loops(embeddings, groups):
    total = 0.0
    for i in range(len(embeddings)):
        same = sum(float(embeddings[i] @ embeddings[j]) for j in range(len(embeddings)) if groups[i] == groups[j])
        other = sum(float(embeddings[i] @ embeddings[j]) for j in range(len(embeddings)) if groups[i] != groups[j])
        total += (other - same) / len(embeddings)
    return total / len(embeddings)


def test_class_terms_equal_the_double_loop():
    images, labels = units(9, 5), torch.tensor([0, 1, 1, 0, 2, 2, 1, 0, 1])
    expected = pytest.approx(penalty_by_loops(images, labels.tolist()), abs=1e-6)
    assert float(contrastive_image_penalty(images, labels)) == expected
    prompts = units(3, 4, 5)
    rows, owners = [prompts[c, t] for c in range(3) for t in range(4)], [c for c in range(3) for _ in range(4)]
    assert float(contrastive_language_penalty(prompts)) == pytest.approx(penalty_by_loops(rows, owners), abs=1e-6)


def test_class_terms_are_lowest_where_classes_are_opposite():
    embeddings = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])
    assert float(class_penalty(embeddings, torch.tensor([0, 0, 1, 1]))) == -1
    assert float(class_penalty(embeddings, torch.tensor([0, 1, 0, 1]))) == 0


def test_language_term_takes_classes_for_classes():
    opposite = torch.tensor([[1.0, 0], [-1, 0]])[:, None].expand(2, 5, 2)
    assert float(contrastive_language_penalty(opposite)) == -1


def test_decorrelation_is_the_mean_absolute_cosine_of_classes_and_words():
    classes, words = units(3, 4, 5), units(2, 4, 5, seed=1)
    everyone = [
        abs(float(classes[c, t] @ words[w, u])) for c in range(3) for t in range(4) for w in range(2) for u in range(4)
    ]
    matching = [abs(float(classes[c, t] @ words[w, t])) for c in range(3) for w in range(2) for t in range(4)]
    assert float(decorrelation_penalty(classes, words)) == pytest.approx(sum(everyone) / len(everyone), abs=1e-6)
    only = decorrelation_penalty(classes, words, same_template=True)
    assert float(only) == pytest.approx(sum(matching) / len(matching), abs=1e-6)
    right_angles = torch.eye(5)[:3, None].expand(3, 4, 5), torch.eye(5)[3:, None].expand(2, 4, 5)
    assert float(decorrelation_penalty(*right_angles)) == 0


def test_decorrelation_by_template_needs_the_same_templates():
    with pytest.raises(DataError, match="4 templates and word prompts 3"):
        decorrelation_penalty(units(2, 4, 5), units(2, 3, 5), same_template=True)


def test_the_spurious_image_term_is_a_cross_entropy_of_scaled_cosines():
    images, weights, values = units(6, 5), units(2, 5, seed=1), torch.tensor([0, 1, 1, 0, 1, 0])
    expected = F.cross_entropy(14.0 * images @ weights.T, values)
    assert torch.allclose(attribute_cross_entropy(images, weights, values, 14.0), expected)
