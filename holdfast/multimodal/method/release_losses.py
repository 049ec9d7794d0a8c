"""The terms as the authors' release has them: cosine penalties and a cross-entropy, without a temperature of their own.

`holdfast.multimodal.method.losses` has the form of the equations. Two slips of the release are not repeated. Its
language terms pair embeddings in the order of templates with labels in the order of classes. And where a run is logged,
its spurious language term is computed for the names of the classes as well as for the spurious words: with a weight of
0 that changes nothing, with a weight of 1 it adds a penalty on the cosines of class names with each other.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import DataError
from holdfast.multimodal.method.losses import entries_of


def class_penalty(embeddings: Tensor, groups: Tensor) -> Tensor:
    """Minus the cosines inside a group, plus those across, both as means over all pairs, self-pairs included.

    Args:
        embeddings: unit length, (n, width).
        groups: int64 of shape (n,).

    Returns:
        ``mean_ij cos_ij (1 - 2 [g_i = g_j])``.
    """
    cosines = embeddings.float() @ embeddings.float().T
    return torch.where(groups[:, None] == groups, -cosines, cosines).mean()


def contrastive_image_penalty(images: Tensor, labels: Tensor) -> Tensor:
    """L_vc of the release.

    Args:
        images: embeddings, (n, width).
        labels: int64 of shape (n,).

    Returns:
        The penalty.
    """
    return class_penalty(images, labels)


def contrastive_language_penalty(class_prompts: Tensor) -> Tensor:
    """L_lc of the release.

    Args:
        class_prompts: (classes, templates, width).

    Returns:
        The penalty.
    """
    return class_penalty(class_prompts.flatten(0, 1), entries_of(class_prompts))


def decorrelation_penalty(class_prompts: Tensor, word_prompts: Tensor, *, same_template: bool = False) -> Tensor:
    """L_ls of the release: class names and spurious words are pushed towards right angles.

    No image and no attribute label enters.

    Args:
        class_prompts: (classes, templates, width).
        word_prompts: (words, templates, width), of the same templates.
        same_template: compare a class and a word in the same template only.

    Returns:
        Mean absolute cosine.

    Raises:
        DataError: if the templates differ in number where they are compared in pairs.
    """
    classes, words = class_prompts.float(), word_prompts.float()
    if not same_template:
        return (classes.flatten(0, 1) @ words.flatten(0, 1).T).abs().mean()
    if classes.shape[1] != words.shape[1]:
        raise DataError(
            f"class prompts have {classes.shape[1]} templates and word prompts {words.shape[1]}; fill the same ones"
        )
    return torch.einsum("ctd,wtd->cwt", classes, words).abs().mean()


def attribute_cross_entropy(
    images: Tensor, attribute_weights: Tensor, attributes: Tensor, scale: Tensor | float
) -> Tensor:
    """L_vs of the release: an image must tell its attribute along the attribute's own direction in language.

    Args:
        images: embeddings, (n, width).
        attribute_weights: the ensembled prompt of each attribute value, (values, width).
        attributes: value of each image, int64 of shape (n,).
        scale: one over the temperature.

    Returns:
        The cross-entropy of zero-shot logits.
    """
    return F.cross_entropy(scale * images.float() @ attribute_weights.float().T, attributes)
