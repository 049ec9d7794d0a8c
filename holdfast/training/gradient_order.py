"""Gradients of DistributedDataParallel added in an order that depends on nothing but the processes' numbers.

torch lays gradients out in flat buffers, first by the order of the parameters and, from the second step on, by the
order in which they arrived. An all-reduce of three or more processes goes round a ring, so where an element lies
decides whose part is added first. A training that was resumed begins with the first layout once more, and rounds
otherwise than the one that went on. Here every process adds a stretch of the buffer in the order of the processes and
hands it to the others: as much goes through the network as round the ring, and no layout matters. Two processes need
none of it, since a + b is b + a.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


def average_in_order(model: nn.Module) -> nn.Module:
    """Let a resumed training of three or more processes go on to the bit: call it before the first backward pass.

    Leaves a model as it is that isn't in DistributedDataParallel, has a communication hook already, or is on a GPU.
    There give DistributedDataParallel ``find_unused_parameters=True``, with which its first layout stays.

    Args:
        model: in DistributedDataParallel; changed in place.

    Returns:
        The same model.
    """
    if (
        isinstance(model, nn.parallel.DistributedDataParallel)
        and dist.get_world_size(model.process_group) > 2
        and not model._comm_hooks
        and all(weight.device.type == "cpu" for weight in model.parameters())
    ):
        model.register_comm_hook(model.process_group, _averaged)
    return model


# torch reads the annotations of a hook, so this module must not make strings of them.
def _averaged(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """The communication hook: a bucket's mean over the processes."""
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(mean_in_order(bucket.buffer(), group))
    return done


def mean_in_order(values: Tensor, group: Any = None) -> Tensor:
    """The mean over the processes, each element added in the order of their numbers wherever it lies.

    Args:
        values: as many in every process, of shape (n,).
        group: the processes; all of them by default.

    Returns:
        Shape (n,), the same bits in every process.
    """
    count = dist.get_world_size(group)
    share = -(-len(values) // count)
    sent = F.pad(values, (0, share * count - len(values)))
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    # One after the other: a reduction over a dimension may add in another order where its vectors end.
    first, *others = received.view(count, share)
    for other in others:
        first += other
    first /= count
    dist.all_gather(list(sent.view(count, share)), first, group=group)
    return sent[: len(values)]
