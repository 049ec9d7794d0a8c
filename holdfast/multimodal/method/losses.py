"""The losses of spurious-aware fine-tuning: CLIP's own, two that contrast classes, two that contrast attributes.

Yang, Nushi, Palangi and Mirzasoleiman, "Mitigating Spurious Correlations in Multi-modal Models during Fine-tuning"
(ICML 2023, https://arxiv.org/abs/2304.03916), equations 7.1 to 7.6 of the dissertation
(https://escholarship.org/uc/item/0399v1qw). Two forms exist. The text writes every term as one construct, CS, a
supervised contrastive loss: these functions are here. What the authors ran are cosine penalties and a cross-entropy:
`holdfast.multimodal.method.release_losses`. Everything takes embeddings of unit length and returns a scalar.

Prompts carry their meaning in their shape, (classes, templates, width), so a class can't be taken for a template: the
release pairs embeddings in one order with labels in the other.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import DataError


def clip_loss(images: Tensor, texts: Tensor, scale: Tensor | float) -> Tensor:
    """Each image must find its text among the batch's, and each text its image (equation 7.1).

    Where captions repeat, as they do when every image of a class has the same one, the loss can't fall below
    ``sum_c (n_c / N) log n_c``.

    Args:
        images: embeddings, (n, width).
        texts: the embedding of each image's caption, (n, width).
        scale: what cosines are multiplied by, one over the temperature.

    Returns:
        The mean of both directions; log n where all embeddings are the same.
    """
    logits = scale * images.float() @ texts.float().T
    own = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2


def group_contrast(
    anchors: Tensor, others: Tensor, positives: Tensor, candidates: Tensor, scale: Tensor | float
) -> Tensor:
    """Pull each anchor to its positives, away from the other candidates: minus CS, the construct of every term.

    As printed, CS would be maximised by giving all embeddings one value, so its negative is minimised here: the mean
    over the positives p of an anchor i of ``-log(exp(s <a_i, b_p>) / sum_k exp(s <a_i, b_k>))``, k running over its
    candidates. Anchors without a positive are left out. At least log P for P positives, log(P + Q) where all embeddings
    are the same.

    Args:
        anchors: (n, width).
        others: what anchors are compared with, (m, width).
        positives: which of them belong to an anchor, bool of shape (n, m).
        candidates: which of them it is compared with at all, bool of shape (n, m); includes the positives.
        scale: one over the temperature.

    Returns:
        The mean over anchors; 0 where none has a positive.
    """
    known = positives.any(1)
    positives = positives[known]
    logits = scale * anchors[known].float() @ others.float().T
    log_sum = logits.masked_fill(~candidates[known], -torch.inf).logsumexp(1)
    losses = log_sum - (logits * positives).sum(1) / positives.sum(1)
    return losses.sum() / max(len(losses), 1)


def contrast_within(embeddings: Tensor, groups: Tensor, scale: Tensor | float) -> Tensor:
    """`group_contrast` inside one modality: positives share the group, and no embedding is compared with itself.

    Args:
        embeddings: (n, width).
        groups: int64 of shape (n,).
        scale: one over the temperature.

    Returns:
        The mean over those that have a partner.
    """
    if groups.shape != embeddings.shape[:1]:
        raise DataError(
            f"there are {len(embeddings)} embeddings and groups of shape {tuple(groups.shape)}; give one group for each"
        )
    others = ~torch.eye(len(groups), dtype=torch.bool, device=groups.device)
    return group_contrast(embeddings, embeddings, (groups[:, None] == groups) & others, others, scale)


def contrastive_image_loss(images: Tensor, labels: Tensor, scale: Tensor | float) -> Tensor:
    """Images of a class together, classes apart (equation 7.2, L_vc).

    Args:
        images: embeddings, (n, width).
        labels: class of each, int64 of shape (n,).
        scale: one over the temperature.

    Returns:
        The loss.
    """
    return contrast_within(images, labels, scale)


def contrastive_language_loss(class_prompts: Tensor, scale: Tensor | float) -> Tensor:
    """The templates of a class together, classes apart (equation 7.3, L_lc).

    Args:
        class_prompts: embeddings of every template filled with every class, (classes, templates, width).
        scale: one over the temperature.

    Returns:
        The loss.
    """
    return contrast_within(class_prompts.flatten(0, 1), entries_of(class_prompts), scale)


def spurious_image_loss(images: Tensor, attributes: Tensor, scale: Tensor | float) -> Tensor:
    """Images with the same value of the spurious attribute together, other values apart (equation 7.4, L_vs).

    Args:
        images: embeddings, (n, width).
        attributes: value of the attribute, or the group (class x attribute) as the text describes it in words, int64
            of shape (n,).
        scale: one over the temperature.

    Returns:
        The loss.
    """
    return contrast_within(images, attributes, scale)


def spurious_language_loss(pair_prompts: Tensor, scale: Tensor | float) -> Tensor:
    """Prompts that name the same spurious attribute together, whatever their class (equation 7.5, L_ls).

    Args:
        pair_prompts: embeddings of every template filled with every class and attribute,
            (classes, attributes, templates, width).
        scale: one over the temperature.

    Returns:
        The loss.
    """
    by_attribute = pair_prompts.transpose(0, 1).flatten(1, 2)
    return contrast_within(by_attribute.flatten(0, 1), entries_of(by_attribute), scale)


def entries_of(prompts: Tensor) -> Tensor:
    """Which entry (class, word, attribute) each row of ``prompts.flatten(0, 1)`` belongs to, int64.

    Args:
        prompts: (entries, templates, width).

    Returns:
        int64 of shape (entries x templates,).
    """
    entries, templates = prompts.shape[:2]
    return torch.arange(entries, device=prompts.device).repeat_interleave(templates)
