"""Contrastive pre-training of a small two-tower model on images with captions (Radford et al. 2021).

For experiments on a CPU and for demonstrations, where a model must first learn a shortcut that fine-tuning can then
remove. AdamW under a one-cycle rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from holdfast.errors import DataError
from holdfast.multimodal.backends.base import TwoTowerModel
from holdfast.multimodal.method.losses import clip_loss
from holdfast.primitives.streams import torch_stream


def pretrain(
    tower: TwoTowerModel,
    images: Tensor,
    captions: Sequence[str] | Tensor,
    *,
    epochs: int = 12,
    batch_size: int = 128,
    peak_rate: float = 2e-3,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train all of a tower with CLIP's loss, in place.

    Args:
        tower: left in evaluation mode.
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
    tokens = captions if isinstance(captions, Tensor) else tower.tokenize(list(captions))
    steps = len(images) // batch_size
    optimizer = torch.optim.AdamW(tower.parameters(), lr=peak_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak_rate, total_steps=epochs * steps)
    means = []
    tower.train()
    for epoch in range(epochs):
        total = 0.0
        order = torch.randperm(len(images), generator=torch_stream(seed, "pretrain", epoch))
        for rows in torch.split(order[: steps * batch_size], batch_size):
            loss = clip_loss(tower.encode_image(images[rows]), tower.encode_text(tokens[rows]), tower.scale())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        means.append(total / steps)
        if progress is not None:
            progress(epoch, means[-1])
    tower.eval()
    return means
