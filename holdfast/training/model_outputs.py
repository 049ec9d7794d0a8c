"""What the model makes of the examples, computed once and shared by every policy that asks.

Outputs come from a forward pass in evaluation mode, without tape and without augmentation; the model's mode and its
batch-norm statistics are as they were afterwards. Outputs are stored per example, so a policy that asks for a subset
pays for that subset only, and a second policy that asks for the same examples pays nothing.
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
from holdfast.errors import DataError
from holdfast.models.heads import features_and_logits, logits_of
from holdfast.models.modes import evaluation_mode


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and no tape inside the block; every submodule gets its own mode back."""
    with evaluation_mode(model), torch.no_grad():
        yield


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter or buffer lives; the CPU for a model without any."""
    tensors: Iterator[Tensor] = chain(model.parameters(), model.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def to_device(inputs: InputBatch, device: torch.device) -> InputBatch:
    """The batch on `device`, whether it is one tensor or named ones."""
    if isinstance(inputs, dict):
        return {name: part.to(device) for name, part in inputs.items()}
    return inputs.to(device)


def call(model: nn.Module, inputs: InputBatch) -> Tensor:
    """Logits of the model for a batch; named tensors are passed by name.

    Raises:
        DataError: if batch norm is to learn from a mini-batch of one example.
    """
    try:
        return logits_of(model(**inputs) if isinstance(inputs, dict) else model(inputs))
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise DataError(
            "a mini-batch has one example, and batch norm can't learn from one; train on more examples, or with a "
            "model without batch norm"
        ) from error


def check_outputs(outputs: Tensor, n_classes: int) -> None:
    """Refuse outputs that are too few to tell the classes apart.

    Args:
        outputs: logits of some examples, (examples, outputs).
        n_classes: how many classes the data has.

    Raises:
        DataError: if there are fewer outputs than classes.
    """
    if outputs.ndim != 2 or outputs.shape[1] < n_classes:
        raise DataError(
            f"the model's outputs have shape {tuple(outputs.shape)} for {n_classes} classes; give a model with an "
            "output per class"
        )


class ModelOutputs:
    """Lazily computed, cached outputs of one model state for the examples of one set.

    Args:
        model: the model; its parameters must not change while the outputs are used.
        examples: the set.
        batch_size: examples per forward pass.
        features: whether to keep the inputs of the head too; asking for them later runs a second pass.
        head: name of the head where it can't be found, see `holdfast.models.find_head`.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Examples,
        *,
        batch_size: int = 512,
        features: bool = False,
        head: str | None = None,
    ) -> None:
        self.forwarded = 0
        self._model = model
        self._examples = examples
        self._batch_size = batch_size
        self._want_features = features
        self._head = head
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
        logits = self.logits(positions)
        check_outputs(logits, self._examples.n_classes)
        return F.cross_entropy(logits, self._labels(positions), reduction="none")

    def residuals(self, positions: Tensor | None = None) -> Tensor:
        """Gradient of the loss with respect to the logits, softmax minus one-hot, shape (positions, classes)."""
        residual = self.probabilities(positions)
        check_outputs(residual, self._examples.n_classes)
        residual[torch.arange(len(residual)), self._labels(positions)] -= 1
        return residual

    def _labels(self, positions: Tensor | None) -> Tensor:
        return self._examples.labels if positions is None else self._examples.labels[positions]

    def _get(self, kind: str, positions: Tensor | None) -> Tensor:
        missing = ~self._known if positions is None else torch.zeros_like(self._known)
        if positions is not None:
            missing[positions] = ~self._known[positions]
        if not len(self._examples):
            raise DataError("there are no examples to run the model on; give at least one")
        if kind not in self._stored and not missing.any():
            missing[:1] = True  # nobody was asked for, and how wide the answer is must be known
        self._fill(missing.nonzero().flatten())
        stored = self._stored[kind]
        return stored.clone() if positions is None else stored[positions]

    def _fill(self, positions: Tensor) -> None:
        if len(positions) == 0:
            return
        device = device_of(self._model)
        with evaluating(self._model):
            for chunk in torch.split(positions, self._batch_size):
                inputs = to_device(self._examples.inputs.gather(chunk), device)
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
