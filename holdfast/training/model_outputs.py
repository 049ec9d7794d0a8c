"""What the model makes of the examples, computed once and shared by every policy that asks.

Outputs come from a forward pass in evaluation mode, without tape and without augmentation; the model's mode and its
batch-norm statistics are as they were afterwards. Outputs are stored per example, so a policy that asks for a subset
pays for that subset only, and a second policy that asks for the same examples pays nothing. They are kept in float32,
whatever the model computes in: policies decide in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.data.inputs import InputBatch
from holdfast.data.worker_processes import Request
from holdfast.data.workers import read_ahead
from holdfast.errors import ConfigError
from holdfast.models.heads import features_and_logits, run
from holdfast.models.modes import evaluation_mode
from holdfast.training.precision import Precision, autocast


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and no tape inside the block; every submodule gets its own mode back."""
    with evaluation_mode(model), torch.no_grad():
        yield


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter or buffer lives; the CPU for a model without any."""
    tensors: Iterator[Tensor] = chain(model.parameters(), model.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def to_device(inputs: InputBatch, device: torch.device, *, wait: bool = True) -> InputBatch:
    """The batch on `device`, whether it is one tensor or named ones; from pinned memory there is no need to wait."""
    if isinstance(inputs, dict):
        return {name: part.to(device, non_blocking=not wait) for name, part in inputs.items()}
    return inputs.to(device, non_blocking=not wait)


def pinned(inputs: InputBatch) -> InputBatch:
    """The batch in page-locked memory, from which a GPU fetches it by itself.

    Raises:
        ConfigError: where there is no device that such memory is for.
    """
    try:
        if isinstance(inputs, dict):
            return {name: part.pin_memory() for name, part in inputs.items()}
        return inputs.pin_memory()
    except (RuntimeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"there is no page-locked memory for this device ({reason}); leave pin_memory out") from error


def call(model: nn.Module, inputs: InputBatch) -> Tensor:
    """Logits of the model for a batch, in float32 at least; named tensors are passed by name."""
    return run(model, inputs)


class ModelOutputs:
    """Lazily computed, cached outputs of one model state for the examples of one set.

    Args:
        model: the model; its parameters must not change while the outputs are used.
        examples: the set.
        batch_size: examples per forward pass.
        features: whether to keep the inputs of the head too; asking for them later runs a second pass.
        head: name of the head where it can't be found, see `holdfast.models.find_head`.
        precision: what the forward passes compute in.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Examples,
        *,
        batch_size: int = 512,
        features: bool = False,
        head: str | None = None,
        precision: Precision = "fp32",
    ) -> None:
        self.forwarded = 0
        self._model = model
        self._examples = examples
        self._batch_size = batch_size
        self._want_features = features
        self._head = head
        self._precision = precision
        self._stored: dict[str, Tensor] = {}
        self._known = torch.zeros(len(examples), dtype=torch.bool)

    def logits(self, positions: Tensor | None = None) -> Tensor:
        """Outputs before the softmax, float32 of shape (positions, classes); of all examples where none are named."""
        return self._get("logits", positions)

    def features(self, positions: Tensor | None = None) -> Tensor:
        """Inputs of the last linear layer, float32 of shape (positions, features)."""
        if not self._want_features:
            self._want_features = True
            self._known.zero_()
        return self._get("features", positions)

    def probabilities(self, positions: Tensor | None = None) -> Tensor:
        """Softmax outputs, shape (positions, classes)."""
        return self.logits(positions).softmax(1)

    def predictions(self, positions: Tensor | None = None) -> Tensor:
        """Most likely class, int64 of shape (positions,)."""
        return self.logits(positions).argmax(1)

    def losses(self, positions: Tensor | None = None) -> Tensor:
        """Cross-entropy of each example, shape (positions,)."""
        return F.cross_entropy(self.logits(positions), self._labels(positions), reduction="none")

    def residuals(self, positions: Tensor | None = None) -> Tensor:
        """Gradient of the loss with respect to the logits, softmax minus one-hot, shape (positions, classes)."""
        residual = self.probabilities(positions)
        residual[torch.arange(len(residual)), self._labels(positions)] -= 1
        return residual

    def _labels(self, positions: Tensor | None) -> Tensor:
        return self._examples.labels if positions is None else self._examples.labels[positions]

    def _get(self, kind: str, positions: Tensor | None) -> Tensor:
        missing = ~self._known if positions is None else torch.zeros_like(self._known)
        if positions is not None:
            missing[positions] = ~self._known[positions]
        self._fill(missing.nonzero().flatten())
        stored = self._stored[kind]
        return stored.clone() if positions is None else stored[positions]

    def _fill(self, positions: Tensor) -> None:
        if len(positions) == 0:
            return
        device, chunks = device_of(self._model), torch.split(positions, self._batch_size)
        read = read_ahead(self._examples.inputs, map(Request, chunks))
        with evaluating(self._model), autocast(self._precision, device):
            for chunk, batch in zip(chunks, read, strict=True):
                inputs = to_device(batch, device)
                if self._want_features:
                    features, logits = features_and_logits(self._model, inputs, head=self._head)
                    self._store("features", chunk, features)
                else:
                    logits = call(self._model, inputs)
                self._store("logits", chunk, logits)
                self.forwarded += len(chunk)
        self._known[positions] = True

    def _store(self, kind: str, positions: Tensor, values: Tensor) -> None:
        values = values.detach().to("cpu", torch.float32)
        if kind not in self._stored or self._stored[kind].shape[1:] != values.shape[1:]:
            self._stored[kind] = torch.zeros(len(self._examples), *values.shape[1:])
        self._stored[kind][positions] = values
