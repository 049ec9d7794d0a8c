"""Coverage-centric selection: from every level of difficulty some, instead of the hardest alone.

Keeping the hardest examples fails at small fractions: what is left covers little of the data, and wrong labels are
among the hardest. CCS (Zheng, Liu, Lai and Prakash 2023, https://arxiv.org/abs/2210.15809) leaves the very hardest out,
cuts the range of scores into strata of equal width and shares the budget out evenly among them, small ones giving what
they have. Its score is the area under the margin (AUM; Pleiss, Zhang, Elenberg and Weinberger 2020,
https://arxiv.org/abs/2001.10528): by how much the logit of an example's label was above the largest other one, averaged
over the epochs of a training.
"""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.errors import ConfigError


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """The logit of each label minus the largest other logit, shape (n,): large is easy.

    Args:
        logits: shape (n, classes), of at least two classes.
        labels: int64 of shape (n,).

    Example:
        >>> import torch
        >>> margins(torch.tensor([[3.0, 1.0, 0.5], [3.0, 1.0, 0.5]]), torch.tensor([0, 1])).tolist()
        [2.0, -2.0]
    """
    if logits.shape[1] < 2:
        raise ConfigError(f"a margin needs two classes at least, there is {logits.shape[1]}; take el2n or grand")
    own = logits.gather(1, labels[:, None]).squeeze(1)
    return own - logits.scatter(1, labels[:, None], -torch.inf).max(1).values


def coverage_sample(
    scores: Tensor, size: int, *, strata: int = 50, cutoff: float = 0.0, stream: torch.Generator
) -> Tensor:
    """Draw evenly from every stratum of scores.

    Args:
        scores: of each candidate, small ones hard, shape (n,).
        size: how many to draw, at most n.
        strata: into how many parts of equal width the range of scores is cut.
        cutoff: share of the candidates, the hardest, that are left out; less where too few would be left.
        stream: where draws come from.

    Returns:
        Places of the drawn, int64 of shape (size,), ascending.
    """
    n = len(scores)
    left_out = min(int(cutoff * n), n - size)
    pool = scores.argsort(stable=True)[left_out:]
    values = scores[pool].to(torch.float64)
    low, high = values.min(), values.max()
    cell = (
        ((values - low) / (high - low) * strata).long().clamp_(0, strata - 1) if high > low else torch.zeros_like(pool)
    )
    counts = torch.bincount(cell, minlength=strata)
    drawn, missing, strata_left = list[Tensor](), size, int(counts.count_nonzero())
    # From the smallest on: what one can't give is shared out among those after it.
    for stratum in counts.argsort(stable=True).tolist():
        if counts[stratum] == 0:
            continue
        take = min(int(counts[stratum]), missing // strata_left)
        members = pool[cell == stratum]
        drawn.append(members[torch.randperm(len(members), generator=stream)[:take]])
        missing, strata_left = missing - take, strata_left - 1
    return torch.cat(drawn).sort().values
