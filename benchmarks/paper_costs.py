"""What one example costs in each network of the documents: `python benchmarks/paper_costs.py`, seconds.

Operations of a forward and a backward pass are counted by torch on tensors without values, so neither weights nor time
are needed; the bytes kept for the backward pass are those of its saved tensors, each storage once. Networks whose
cells run on the processor are also timed: steps of plain SGD with the document's mini-batches, on one thread, in
processor seconds. Writes ``holdfast/papers/engine/costs.json``, by which `holdfast reproduce DOCUMENT --estimate`
counts.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from holdfast.models.table import MODELS
from holdfast.papers.engine.jsonfile import write_json

FILE = Path(__file__).parents[1] / "holdfast/papers/engine/costs.json"
_BATCH = 8

#: Shape of an example and number of classes, as in the documents.
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "lenet5": ((3, 28, 28), 5),
    "resnet18": ((3, 224, 224), 2),
    "resnet18-cifar": ((3, 32, 32), 10),
    "resnet18-pixels": ((3, 224, 224), 6),
    "resnet20": ((3, 32, 32), 10),
    "resnet50": ((3, 224, 224), 2),
    "cnn-28": ((3, 28, 28), 10),
    "cnn-64": ((3, 64, 64), 2),
    "cnn-celeba": ((3, 84, 84), 2),
    "cnn-fashion": ((1, 28, 28), 10),
    "cnn-femnist": ((1, 28, 28), 62),
    "softmax": ((10_000,), 500),
    "svm": ((100,), 2),
}
#: Size of the mini-batches of networks that are timed.
TIMED = {
    "resnet18-cifar": 8,
    "resnet18-pixels": 4,
    "resnet20": 128,
    "cnn-28": 63,
    "cnn-64": 32,
    "cnn-celeba": 16,
    "cnn-fashion": 16,
    "cnn-femnist": 32,
    "softmax": 100,
    "svm": 32,
}
_STEPS = 7


def cost_of(name: str) -> dict[str, float]:
    """Operations and bytes of an example, and parameters.

    Args:
        name: a key of `SHAPES`.

    Returns:
        ``flop`` of a forward and a backward pass, ``activation_bytes`` kept in between, ``parameters``.
    """
    shape, classes = SHAPES[name]
    model = MODELS[name](shape, classes).to("meta")
    inputs = torch.empty(_BATCH, *shape, device="meta")
    kept: dict[int, int] = {}
    weights = {part.untyped_storage()._cdata for part in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter, saved_tensors_hooks(pack, lambda tensor: tensor):
        _loss(model, inputs).backward()
    cost = {
        "flop": counter.get_total_flops() / _BATCH,
        "activation_bytes": sum(kept.values()) / _BATCH,
        "parameters": sum(part.numel() for part in model.parameters()),
    }
    return cost | ({"seconds": seconds_of(name, TIMED[name])} if name in TIMED else {})


def seconds_of(name: str, batch: int) -> float:
    """Processor seconds of an example in a step of SGD on one thread: the median of a few steps.

    Args:
        name: a key of `SHAPES`.
        batch: examples in a step.
    """
    shape, classes = SHAPES[name]
    torch.set_num_threads(1)
    model, inputs = MODELS[name](shape, classes), torch.rand(batch, *shape)
    optimizer, took = torch.optim.SGD(model.parameters(), lr=1e-3), []
    for _ in range(_STEPS):
        began = time.process_time()
        optimizer.zero_grad()
        _loss(model, inputs).backward()
        optimizer.step()
        took.append(time.process_time() - began)
    return statistics.median(took) / batch


def _loss(model: nn.Module, inputs: Tensor) -> Tensor:
    outputs: Tensor = model(inputs)
    if outputs.ndim == 1:
        return outputs.square().sum()
    return cross_entropy(outputs, torch.zeros(len(outputs), dtype=torch.int64, device=outputs.device))


if __name__ == "__main__":
    write_json(FILE, {name: cost_of(name) for name in SHAPES})
