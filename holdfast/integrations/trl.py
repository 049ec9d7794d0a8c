"""Per-example weights in TRL's SFTTrainer.

::

    Trainer = weighted_sft_trainer()
    rows = load_dataset("json", data_files="chosen/messages.jsonl", split="train")  # with a column "weight"
    Trainer(model, args=SFTConfig(...), train_dataset=rows).train()

A row's weight multiplies the losses of its tokens; all else is TRL's own, so weights of one give TRL's training to the
bit. Weights of a choice (``weights.parquet``) have mean one, so the learning rate keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import ConfigError, DataError, MissingDependencyError

#: The column that holds a row's weight.
WEIGHT = "weight"


def weighted_sft_trainer(base: type[Any] | None = None) -> type[Any]:
    """A class like TRL's SFTTrainer that minds a column ``weight`` of its training data.

    Args:
        base: the trainer to derive from, where it is one of your own; TRL's by default.

    Returns:
        The class. It refuses packing and padding-free batches, in which examples have no place of their own, and the
        loss ``dft``, which is no sum of log-probabilities.

    Raises:
        MissingDependencyError: if TRL isn't installed.
    """
    if base is None:
        try:
            from trl import SFTTrainer  # noqa: PLC0415 - an optional package
        except ImportError as error:
            raise MissingDependencyError("TRL is not installed; pip install 'holdfast[trl]'") from error
        base = SFTTrainer

    parent: Any = base

    class WeightedSFTTrainer(parent):  # type: ignore[misc]
        """TRL's trainer, with a weight for each example."""

        data_collator: Any
        _signature_columns: Any

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            if self.args.packing or getattr(self.args, "padding_free", False):
                raise ConfigError(
                    "packed and padding-free batches join examples, so they can have no weights; set packing=False and "
                    "padding_free=False"
                )
            if self.args.loss_type != "nll":
                raise ConfigError(
                    f"weights are for the loss 'nll', and loss_type is {self.args.loss_type!r}; set 'nll'"
                )
            self.data_collator = _with_weights(self.data_collator)

        def _set_signature_columns_if_needed(self) -> None:
            super()._set_signature_columns_if_needed()
            if WEIGHT not in self._signature_columns:
                self._signature_columns = [*self._signature_columns, WEIGHT]

        def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
            weights = inputs.pop(WEIGHT, None)
            return super().compute_loss(
                model if weights is None else _weighing(model, weights), inputs, *args, **options
            )

    return WeightedSFTTrainer


def _with_weights(collate: Callable[[Sequence[dict[str, Any]]], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A collator that takes weights out of the examples and puts them beside the batch."""
    import torch  # noqa: PLC0415

    def collated(examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        weights = [example[WEIGHT] for example in examples if WEIGHT in example]
        batch = collate([{name: value for name, value in example.items() if name != WEIGHT} for example in examples])
        if not weights:
            return batch
        values = torch.tensor(weights, dtype=torch.float32) if len(weights) == len(examples) else None
        if values is None or not bool((values.isfinite() & (values >= 0)).all()):
            raise DataError("some rows have no weight, or one that is negative or no number; give each row 0 or more")
        return {**batch, WEIGHT: values}

    return collated


def _weighing(model: Any, weights: Any) -> Callable[..., Any]:
    """The model, whose log-probabilities of each example's tokens are multiplied by the example's weight."""

    def weighed(**inputs: Any) -> Any:
        outputs = model(**inputs)
        log_probs = outputs.log_probs
        outputs.log_probs = log_probs * weights.to(log_probs).view(-1, *[1] * (log_probs.dim() - 1))
        return outputs

    return weighed
