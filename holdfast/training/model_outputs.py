"""What the model makes of the examples, computed once and shared by every policy that asks.

Outputs come from a forward pass in evaluation mode, without tape and without augmentation; the model's mode and its
batch-norm statistics are as they were afterwards. Outputs are stored per example, so a policy that asks for a subset
pays for that subset only, and a second policy that asks for the same examples pays nothing. They are kept in float32,
whatever the model computes in: policies decide in float32.

On several processes each forwards its part. Mini-batches are cut as one process would cut them and dealt out whole, so
outputs are the same to the bit however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.data.inputs import InputBatch
from holdfast.data.worker_processes import Request
from holdfast.data.workers import read_ahead
from holdfast.errors import ConfigError, DataError
from holdfast.models.heads import features_and_logits, run
from holdfast.models.modes import evaluation_mode
from holdfast.training.precision import Precision, autocast
from holdfast.training.ranks import ALONE, Ranks


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


#: Logits of a model for a batch, as training and sweeps take them.
call = run


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
        precision: what the forward passes compute in.
        ranks: the processes that share the work; all must ask for the same at the same time, and all get it.
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
        ranks: Ranks = ALONE,
    ) -> None:
        self.forwarded = 0
        self._model = model
        self._examples = examples
        self._batch_size = batch_size
        self._want_features = features
        self._head = head
        self._ranks = ranks
        self._precision = precision
        self._stored: dict[str, Tensor] = {}
        self._known = torch.zeros(len(examples), dtype=torch.bool)

    def logits(self, positions: Tensor | None = None) -> Tensor:
        """Outputs before the softmax, float32 of shape (positions, classes); of all examples where none are named."""
        return self._get("logits", positions)

    def features(self, positions: Tensor | None = None) -> Tensor:
        """Inputs of the last linear layer, float32 of shape (positions, features)."""
        self.keep_features(True)
        return self._get("features", positions)

    def keep_features(self, wanted: bool) -> None:
        """Keep the inputs of the head from now on; what was forwarded without them is forwarded again."""
        if wanted and not self._want_features:
            self._want_features = True
            self._known.zero_()

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
        self.sweep(positions, to_all=True)

    def sweep(self, positions: Tensor, *, to_all: bool) -> None:
        """Forward the examples at `positions`, this process its part of them, and gather what the others made.

        Args:
            positions: int64, the same in all processes.
            to_all: whether every process is to know the outputs, or the main one only.
        """
        ranks, chunks = self._ranks, torch.split(positions, self._batch_size)
        cuts = [-(-len(chunks) * index // ranks.count) for index in range(ranks.count + 1)]
        shares = [chunks[first:last] for first, last in pairwise(cuts)]
        ranks.together(lambda: self._forward(shares[ranks.index]))
        if ranks.count > 1:
            self._gather([torch.cat(share) if share else positions[:0] for share in shares], to_all=to_all)
        self.forwarded += len(positions)
        self._known[positions] = True

    def _forward(self, chunks: Sequence[Tensor]) -> None:
        device = device_of(self._model)
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

    def _gather(self, shares: Sequence[Tensor], *, to_all: bool) -> None:
        """Take in what the other processes have forwarded, kind by kind, piece by piece."""
        ranks = self._ranks
        # Who had nothing to forward doesn't know yet how wide the outputs are; the first process always had something.
        widths = ranks.broadcast({kind: list(stored.shape[1:]) for kind, stored in self._stored.items()})
        for kind, shape in sorted(widths.items()):
            for source, share in enumerate(shares):
                if source == 0 and not to_all:
                    continue
                rows = torch.zeros(0, *shape)
                if source == ranks.index and len(share):
                    rows = self._stored[kind][share]
                for start, piece in ranks.rows_of(source, rows, torch.zeros(0, *shape), to_all=to_all):
                    if source != ranks.index and (to_all or ranks.is_main):
                        self._store(kind, share[start : start + len(piece)], piece)

    def _store(self, kind: str, positions: Tensor, values: Tensor) -> None:
        values = values.detach().to("cpu", torch.float32)
        if kind not in self._stored or self._stored[kind].shape[1:] != values.shape[1:]:
            self._stored[kind] = torch.zeros(len(self._examples), *values.shape[1:])
        self._stored[kind][positions] = values
