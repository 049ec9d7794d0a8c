"""DistilBERT (Sanh et al. 2019) as a text classifier: PDE's network on CivilComments, from the extra `transformers`.

It takes token ids and attention masks by name, and a new head turns its first token into logits. The encoder starts at
random from the published configuration, or from weights in the Hugging Face hub's form: by name on the hub, or in a
local folder. Only safetensors are read, so nothing that comes with the weights is executed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.errors import CheckpointError, ConfigError, MissingDependencyError
from holdfast.models.shapes import expect_shape

_log = logging.getLogger(__name__)

#: What a published encoder lacks: the layers between the first token and the logits.
_HEAD = ("pre_classifier", "classifier")


def distilbert(input_shape: tuple[int, ...], n_classes: int, source: Path | str | None = None) -> nn.Module:
    """A sequence classifier: 66,955,010 parameters at two classes.

    Args:
        input_shape: (tokens,), how many tokens a text is cut or padded to; at most 512.
        n_classes: how many logits.
        source: a name on the hub, or a local folder with ``config.json`` and ``model.safetensors``, whose configuration
            is used and whose weights are loaded. A masked language model or a classifier will do; layers that it lacks
            or has for other classes start at random, and are logged. None starts all of it at random.

    Returns:
        The model, in training mode. It is called with ``input_ids`` and ``attention_mask``.

    Raises:
        MissingDependencyError: if transformers isn't installed.
        ConfigError: if there is no such source, no network to fetch it, or a text has too many tokens for it.
        CheckpointError: if its weights belong to another network.
    """
    (tokens,) = expect_shape("DistilBERT", input_shape, "tokens")
    try:
        from transformers import DistilBertConfig, DistilBertForSequenceClassification  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            "DistilBERT needs transformers; install it with `pip install 'holdfast[transformers]'`"
        ) from error
    if source is None:
        model = DistilBertForSequenceClassification(DistilBertConfig(num_labels=n_classes))
    else:
        model = _pretrained(DistilBertForSequenceClassification, source, n_classes)
    most = model.config.max_position_embeddings
    if tokens > most:
        raise ConfigError(f"DistilBERT reads at most {most} tokens and was given {tokens}; lower max_tokens")
    started: nn.Module = model.float().train()
    return started


def _pretrained(model_class: Any, source: Path | str, n_classes: int) -> Any:
    with _quiet():
        try:
            model, found = model_class.from_pretrained(
                source,
                num_labels=n_classes,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                use_safetensors=True,
                trust_remote_code=False,
            )
        except (OSError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError(
                f"the weights {str(source)!r} can't be loaded ({reason}); connect to the network once, or give a "
                "folder with config.json and model.safetensors"
            ) from error
    fresh = sorted({*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])})
    foreign = [key for key in fresh if key.partition(".")[0] not in _HEAD]
    if foreign:
        raise CheckpointError(
            f"{source} doesn't fit DistilBERT: {len(foreign)} tensors are missing or of another shape, the first is "
            f"{foreign[0]}; give the weights of this network"
        )
    if fresh:
        _log.info("%s has no weights for %d classes in %s: they start at random", source, n_classes, ", ".join(fresh))
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting a new head as a table of missing keys; its verbosity is put back."""
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415 - optional

    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
