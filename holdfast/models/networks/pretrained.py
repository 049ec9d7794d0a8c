"""Networks of the transformers library with weights from the hub or from a folder.

Only safetensors are read and code that comes with a model is never run. Weights that don't belong to the network are an
error; the library itself would start what is missing at random and say so in a table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.data.reachable import is_reachable
from holdfast.errors import CheckpointError, ConfigError

_log = logging.getLogger(__name__)


def load_configuration(source: Path | str, **options: Any) -> Any:
    """The configuration of a model of the transformers library.

    Args:
        source: a name on the hub, or a folder with ``config.json``.
        options: changes of it.

    Raises:
        ConfigError: if it can't be read.
    """
    from transformers import AutoConfig  # noqa: PLC0415 - optional

    with _quiet(), _told(source):
        return AutoConfig.from_pretrained(
            source, trust_remote_code=False, local_files_only=is_offline(source), **options
        )


def load_pretrained(
    model_class: Any, source: Path | str, *, title: str | None = None, new: Sequence[str] | None = (), **options: Any
) -> Any:
    """A model of the transformers library.

    Args:
        model_class: what it must be.
        source: a name on the hub, or a folder with ``config.json`` and ``model.safetensors``.
        title: what messages call it; the class's name by default.
        new: its parts that may start at random, because published weights lack them; they are logged. None stands
            for all that the encoder itself is not: the head, and a pooler.
        options: changes of its configuration.

    Returns:
        The model.

    Raises:
        ConfigError: if it can't be read.
        CheckpointError: if other tensors are missing or of another shape.
    """
    with _quiet(), _told(source):
        model, loading = model_class.from_pretrained(
            source,
            output_loading_info=True,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            local_files_only=is_offline(source),
            **options,
        )
    lacking = sorted({*loading["missing_keys"], *(key for key, *_ in loading["mismatched_keys"])})
    foreign = [key for key in lacking if not _may_be_new(key, model, new)]
    if foreign:
        raise CheckpointError(
            f"{source} doesn't fit {title or model_class.__name__}: {len(foreign)} tensors are missing or of another "
            f"shape, the first is {foreign[0]}; give the weights of this network"
        )
    if lacking:
        _log.info("%s has no weights for %s: they start at random", source, ", ".join(lacking))
    return model


def _may_be_new(key: str, model: Any, new: Sequence[str] | None) -> bool:
    part, _, rest = key.partition(".")
    return part in new if new is not None else part != model.base_model_prefix or rest.startswith("pooler.")


def is_offline(source: Path | str) -> bool:
    """Whether only what is on this machine can be had: asked once and shortly, where the library would try for long."""
    if isinstance(source, Path) or Path(source).is_dir():
        return False
    from huggingface_hub import constants  # noqa: PLC0415 - optional

    return not is_reachable(constants.ENDPOINT)


@contextmanager
def _told(source: Path | str) -> Iterator[None]:
    """Say in one sentence why a model can't be read, and what would help."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"the weights {str(source)!r} can't be loaded ({reason}); connect to the network once, or give a "
            "folder with config.json and model.safetensors"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting new parts as a table of missing keys; its verbosity is put back."""
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415 - optional

    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
