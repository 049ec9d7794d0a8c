"""From positions to what the model takes: a mini-batch's inputs are read, shared out, and sent to the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.data.inputs import InputBatch
from holdfast.data.worker_processes import Request, augmented
from holdfast.data.workers import WorkerInputs, read_ahead
from holdfast.training.batches import Batch, Drawn, SharedBatch
from holdfast.training.model_outputs import pinned, to_device
from holdfast.training.policy import Augmentation
from holdfast.training.ranks import Ranks
from holdfast.training.shares import Share


class BatchReader:
    """Reads mini-batches; of several processes, each its share.

    Args:
        examples: the training set.
        seed: names the random stream of augmentation, with the step.
        ranks: the processes that share every mini-batch.
        channels_last: hand out images with their channels last in memory.
        pin_memory: send inputs to a GPU from page-locked memory, while it computes.
    """

    def __init__(self, examples: Examples, seed: int, ranks: Ranks, *, channels_last: bool, pin_memory: bool) -> None:
        self.ranks = ranks
        self._examples = examples
        self._seed = seed
        self._channels_last = channels_last
        self._pin_memory = pin_memory
        self._shares: dict[int, Share] = {}

    def read(self, upcoming: Iterator[Drawn], augment: Augmentation | None, *, kept: bool) -> Iterator[Batch]:
        """The mini-batches with their inputs, read ahead by workers where there are some.

        Args:
            upcoming: which examples.
            augment: applied to the inputs.
            kept: whether the plan keeps the inputs itself, augmented or not.
        """
        if kept:
            return map(self._of_plan, upcoming)
        by_workers = isinstance(self._examples.inputs, WorkerInputs)
        return (self._ahead if by_workers else self._now)(upcoming, augment)

    def share(self, size: int) -> Share:
        """This process's share of a mini-batch of so many examples."""
        if size not in self._shares:
            self._shares[size] = Share.of(size, self.ranks)
        return self._shares[size]

    def stays(self, device: torch.device | None) -> bool:
        """Whether batches are for `device` as they are read."""
        return not self._channels_last and (device is None or device.type == "cpu")

    def on_device(self, batch: Batch, device: torch.device | None) -> Batch:
        """The batch where the model is."""
        if isinstance(batch, SharedBatch):
            local = self._moved(batch, device)
            labels, weights = batch.whole.labels.to(local.labels.device), batch.whole.weights.to(local.labels.device)
            return SharedBatch.of(local, Batch(local.inputs, labels, batch.whole.positions, weights), batch.share)
        return self._moved(batch, device)

    def _now(self, upcoming: Iterator[Drawn], augment: Augmentation | None) -> Iterator[Batch]:
        inputs, whole = self._examples.inputs, augment is None and self.ranks.count == 1
        for drawn in upcoming:
            if whole:  # a small model's step takes as long as a dozen calls
                yield self._batch(drawn, inputs.gather(drawn.positions))
            else:
                request = self._request(drawn)
                yield self._batch(drawn, augmented(inputs.gather(request.positions), request, augment))

    def _ahead(self, upcoming: Iterator[Drawn], augment: Augmentation | None) -> Iterator[Batch]:
        asked = deque[Drawn]()

        def requests() -> Iterator[Request]:
            for drawn in upcoming:
                asked.append(drawn)
                yield self._request(drawn)

        for inputs in read_ahead(self._examples.inputs, requests(), augment):
            yield self._batch(asked.popleft(), inputs)

    def _request(self, drawn: Drawn) -> Request:
        stream = (self._seed, "augment", drawn.step)
        if self.ranks.count == 1:
            return Request(drawn.positions, stream)
        count = len(drawn.positions)
        places = self.share(count).places
        return Request(drawn.positions[places], stream, places, count)

    def _of_plan(self, drawn: Drawn) -> Batch:
        assert drawn.inputs is not None
        places = slice(None) if self.ranks.count == 1 else self.share(len(drawn.positions)).places
        return self._batch(drawn, drawn.inputs[places])

    def _batch(self, drawn: Drawn, inputs: InputBatch) -> Batch:
        positions = drawn.positions
        whole = Batch(inputs, self._examples.labels.index_select(0, positions), positions, drawn.weights)
        if self.ranks.count == 1:
            return whole
        share = self.share(len(positions))
        places = share.places
        local = Batch(inputs, whole.labels[places], positions[places], share.weigh(drawn.weights))
        return SharedBatch.of(local, whole, share)

    def _moved(self, batch: Batch, device: torch.device | None) -> Batch:
        inputs, labels, positions, weights = batch
        if self._channels_last and isinstance(inputs, Tensor) and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if device is None or device.type == "cpu":
            return Batch(inputs, labels, positions, weights)
        if self._pin_memory:
            inputs = pinned(inputs)
        inputs = to_device(inputs, device, wait=not self._pin_memory)
        return Batch(inputs, labels.to(device), positions, weights.to(device))
