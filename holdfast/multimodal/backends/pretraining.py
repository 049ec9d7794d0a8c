"""Contrastive pre-training of a small two-tower model on images with captions (Radford et al. 2021).

The paper is https://arxiv.org/abs/2103.00020. For experiments on a CPU and for demonstrations, where a model must first
learn a shortcut that fine-tuning can then remove. AdamW under a one-cycle rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from holdfast.errors import DataError
from holdfast.multimodal.backends.base import TwoTowerModel
from holdfast.multimodal.method.losses import clip_loss
from holdfast.streams import torch_stream


def pretrain(
    model: TwoTowerModel,
    images: Tensor,
    captions: Sequence[str] | Tensor,
    *,
    epochs: int = 12,
    batch_size: int = 128,
    peak_rate: float = 2e-3,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train all of a model with CLIP's loss, in place.

    Args:
        model: left in evaluation mode.
        images: preprocessed, (n, 3, height, width).
        captions: a sentence for each, or what the text tower takes for it.
        epochs: passes over the pairs; the last incomplete batch of a pass is left out.
        batch_size: pairs per step.
        peak_rate: largest learning rate.
        seed: of the order of the pairs.
        progress: called after each epoch with its number and mean loss.

    Returns:
        Mean loss of each epoch.
    """
    if len(images) != len(captions) or len(images) < batch_size:
        raise DataError(
            f"there are {len(images)} images and {len(captions)} captions for batches of {batch_size}; give a caption "
            "per image, and at least one batch"
        )
    tokens = captions if isinstance(captions, Tensor) else model.tokenize(list(captions))
    steps = len(images) // batch_size
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak_rate, total_steps=epochs * steps)
    means = []
    model.train()
    for epoch in range(epochs):
        total = 0.0
        order = torch.randperm(len(images), generator=torch_stream(seed, "pretrain", epoch))
        for rows in torch.split(order[: steps * batch_size], batch_size):
            loss = clip_loss(model.encode_image(images[rows]), model.encode_text(tokens[rows]), model.scale())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        means.append(total / steps)
        if progress is not None:
            progress(epoch, means[-1])
    model.eval()
    return means
