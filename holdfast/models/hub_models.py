"""Any classifier of the transformers library, and any network of timm, by name: ``hf:NAME`` and ``timm:NAME``.

``hf:`` starts from the published weights, or from those of a local folder; the shape of an input says whether a text
or an image is classified. Only safetensors are read, and code that comes with a model is never run
(`holdfast.models.networks.pretrained`). ``timm:`` starts at random unless ``pretrained=true`` is among its arguments,
as timm itself does. Both libraries are extras.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.errors import ConfigError, MissingDependencyError, nearest
from holdfast.models.networks.pretrained import load_configuration, load_pretrained
from holdfast.models.shapes import expect_shape
from holdfast.own_code import told_as_sentence

#: What a model classifies, by the number of dimensions of an input: the class that transformers has for it.
_AUTO_CLASSES = {1: "AutoModelForSequenceClassification", 3: "AutoModelForImageClassification"}
#: Arguments by which timm would read files of its own choice.
_TIMM_FILES = ("checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")


def transformers_model(
    name: str, input_shape: tuple[int, ...], n_classes: int, args: Mapping[str, Any], *, pretrained: bool = True
) -> nn.Module:
    """A classifier of the transformers library.

    Args:
        name: on the hub, or a folder with ``config.json`` and ``model.safetensors``.
        input_shape: (tokens,) for texts, (channels, height, width) for images.
        n_classes: how many logits; a head for others starts at random, and is logged.
        args: changes of its configuration, such as ``hidden_dropout_prob``.
        pretrained: whether to load its weights.

    Returns:
        The model, in training mode. One for texts is called with named inputs, such as ``input_ids``.

    Raises:
        MissingDependencyError: if transformers isn't installed.
        ConfigError: if there is no such model, no network to fetch it, or it classifies something else.
        CheckpointError: if its weights belong to another network.
    """
    title = f"hf:{name}"
    try:
        import transformers  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            f"{title} needs transformers; install it with `pip install 'holdfast[transformers]'`"
        ) from error
    if len(input_shape) not in _AUTO_CLASSES:
        raise ConfigError(
            f"{title} classifies texts, of shape (tokens,), or images, of shape (channels, height, width), and was "
            f"given inputs of shape {tuple(input_shape)}; use another model"
        )
    source = _folder_or_name(name, title)
    model_class = getattr(transformers, _AUTO_CLASSES[len(input_shape)])
    config = load_configuration(source, num_labels=n_classes)
    _change(config, args, title)
    _check_inputs(config, input_shape, title)
    if pretrained:
        model = load_pretrained(model_class, source, title=title, new=None, config=config)
    else:
        with told_as_sentence(f"{title} can't be made from its configuration"):
            model = model_class.from_config(config)
    started: nn.Module = model.float().train()
    return started


def timm_model(
    name: str, input_shape: tuple[int, ...], n_classes: int, args: Mapping[str, Any], *, pretrained: bool = True
) -> nn.Module:
    """A network of timm.

    Args:
        name: as `timm.list_models` has it.
        input_shape: (channels, height, width).
        n_classes: how many logits.
        args: of `timm.create_model`; ``pretrained=True`` starts from published weights.
        pretrained: False leaves them out whatever `args` say.

    Returns:
        The model, in training mode.

    Raises:
        MissingDependencyError: if timm, or torchvision, which it needs, isn't installed.
        ConfigError: if there is no such network, or an argument would make timm read other files.
    """
    title = f"timm:{name}"
    channels = expect_shape(title, input_shape, "channels", "height", "width")[0]
    try:
        import timm  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            f"{title} needs timm and the torchvision that goes with your torch ({error}); install them with "
            "`pip install 'holdfast[timm]'`"
        ) from error
    if not timm.is_model(name):
        raise ConfigError(f"timm has no network {name!r}{_close(name, timm.list_models())}")
    files = [argument for argument in _TIMM_FILES if argument in args]
    if files:
        raise ConfigError(f"{title} takes no {files[0]}; give a file of weights with --weights")
    settings = {"num_classes": n_classes, "in_chans": channels, **args}
    settings["pretrained"] = pretrained and bool(args.get("pretrained", False))
    with told_as_sentence(f"{title} can't be made"):
        model: nn.Module = timm.create_model(name, **settings)
    return model.train()


def _folder_or_name(name: str, title: str) -> Path | str:
    if name and Path(name).is_dir():
        return Path(name)
    if not name or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ConfigError(f"there is no folder {name!r} for the model {title}; give one with config.json in it")
    return name


def _change(config: Any, args: Mapping[str, Any], title: str) -> None:
    known = [key for key in config.to_dict() if not key.startswith("_")]
    for key, value in args.items():
        if key not in known:
            raise ConfigError(f"the configuration of {title} has no {key!r}{_close(key, known)}")
        setattr(config, key, value)


def _check_inputs(config: Any, input_shape: tuple[int, ...], title: str) -> None:
    if len(input_shape) == 1:
        most = getattr(config, "max_position_embeddings", None)
        if isinstance(most, int) and 0 < most < input_shape[0]:
            raise ConfigError(f"{title} reads at most {most} tokens and was given {input_shape[0]}; lower max_tokens")
        return
    channels = getattr(config, "num_channels", None)
    if isinstance(channels, int) and channels != input_shape[0]:
        raise ConfigError(
            f"{title} takes images of {channels} channels and was given {input_shape[0]}; convert them, or use another"
        )


def _close(word: str, known: list[str]) -> str:
    clause = nearest(word, known)
    return clause if "did you mean" in clause else ""
