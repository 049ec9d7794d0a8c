"""Text classifiers from the extra `transformers`: DistilBERT on CivilComments (PDE), RoBERTa on SNLI (CREST).

They take token ids and attention masks by name, and a new head turns the first token into logits. The encoder starts at
random from the published configuration, or from weights in the Hugging Face hub's form: by name on the hub, or in a
local folder. Only safetensors are read, so nothing that comes with the weights is executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.models.networks.pretrained import load_pretrained
from holdfast.models.shapes import expect_shape


@dataclass(frozen=True)
class _Network:
    """What transformers calls a network, and how its configuration differs from the library's defaults."""

    title: str
    family: str
    options: tuple[tuple[str, Any], ...]
    head: tuple[str, ...]  # what a published encoder lacks: the layers between the first token and the logits
    reserved: int  # positions that no token of a text takes


_DISTILBERT = _Network("DistilBERT", "DistilBert", (), ("pre_classifier", "classifier"), 0)
_ROBERTA = _Network(
    "RoBERTa",
    "Roberta",
    (("vocab_size", 50265), ("max_position_embeddings", 514), ("type_vocab_size", 1), ("layer_norm_eps", 1e-5)),
    ("classifier",),
    2,
)


def distilbert(input_shape: tuple[int, ...], n_classes: int, source: Path | str | None = None) -> nn.Module:
    """DistilBERT (Sanh et al. 2019) as a classifier: 66,955,010 parameters at two classes.

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
    return _classifier(_DISTILBERT, input_shape, n_classes, source)


def roberta(input_shape: tuple[int, ...], n_classes: int, source: Path | str | None = None) -> nn.Module:
    """RoBERTa-base (Liu et al. 2019) as a classifier: 124,647,939 parameters at three classes; see `distilbert`."""
    return _classifier(_ROBERTA, input_shape, n_classes, source)


def _classifier(
    network: _Network, input_shape: tuple[int, ...], n_classes: int, source: Path | str | None
) -> nn.Module:
    (tokens,) = expect_shape(network.title, input_shape, "tokens")
    try:
        import transformers  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            f"{network.title} needs transformers; install it with `pip install 'holdfast[transformers]'`"
        ) from error
    model_class = getattr(transformers, f"{network.family}ForSequenceClassification")
    if source is None:
        config = getattr(transformers, f"{network.family}Config")(num_labels=n_classes, **dict(network.options))
        model = model_class(config)
    else:
        model = load_pretrained(model_class, source, title=network.title, new=network.head, num_labels=n_classes)
    most = model.config.max_position_embeddings - network.reserved
    if tokens > most:
        raise ConfigError(f"{network.title} reads at most {most} tokens and was given {tokens}; lower max_tokens")
    started: nn.Module = model.float().train()
    return started
