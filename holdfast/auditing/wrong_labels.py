"""How well labels fit what a model says that never learned them: self-confidence, and which labels are likely wrong.

The score of an example is the probability that the model gives its label; wrong labels have low ones. How many of the
lowest are errors is decided by confident learning (Northcutt, Jiang and Chuang, https://arxiv.org/abs/1911.00068): a
class's threshold is its mean self-confidence. A label is taken for wrong where another class alone reaches its
threshold, or several do and another is the most probable, as cleanlab counts them; never where the label itself is.
Probabilities must be out of sample: a model that learned a label agrees with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 8_192


@dataclass(frozen=True, eq=False)
class LabelQuality:
    """What a model says of the labels.

    Attributes:
        confidence: probability of the label, float32 of shape (n,).
        suggested: the most probable class, int64 of shape (n,).
        wrong: which labels are likely wrong, bool of shape (n,).
    """

    confidence: Tensor
    suggested: Tensor
    wrong: Tensor

    @property
    def order(self) -> Tensor:
        """Positions by rising self-confidence, equal ones as they stand; int64 of shape (n,)."""
        return self.confidence.argsort(stable=True)


def label_quality(probabilities: Tensor, labels: Tensor) -> LabelQuality:
    """Self-confidence of every label, and which labels are likely wrong.

    Args:
        probabilities: out of sample, float of shape (n, classes).
        labels: int64 of shape (n,).

    Example:
        >>> import torch
        >>> p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]])
        >>> quality = label_quality(p, torch.tensor([0, 0, 1, 1, 0]))
        >>> quality.order.tolist(), quality.wrong.tolist()
        ([4, 1, 2, 0, 3], [False, False, False, False, True])
    """
    confidence = probabilities.gather(1, labels[:, None]).squeeze(1)
    classes = probabilities.shape[1]
    sizes = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels, confidence.double())
    thresholds = torch.where(sizes > 0, sums / sizes.clamp(min=1), torch.inf)
    suggested, wrong = [], []
    for start in range(0, len(labels), _BLOCK):
        block, own = probabilities[start : start + _BLOCK], labels[start : start + _BLOCK]
        reached = block.double() >= thresholds - 1e-6  # a class of one reaches its own
        likeliest, count = block.argmax(1), reached.sum(1)
        confident = torch.where(count > 1, likeliest, reached.double().argmax(1))
        suggested.append(likeliest)
        wrong.append((count > 0) & (confident != own) & (likeliest != own))
    return LabelQuality(confidence.float(), torch.cat(suggested), torch.cat(wrong))
