"""The check that an input shape is one a network can take, with an error that names the network."""

from __future__ import annotations

from holdfast.errors import ConfigError


def expect_shape(model: str, shape: tuple[int, ...], *meaning: str) -> tuple[int, ...]:
    """Give `shape` back if it has a positive size for every word of `meaning`.

    Args:
        model: who asks, for the message.
        shape: the shape of one input, without the batch dimension.
        meaning: what each dimension stands for, such as ``"channels", "height", "width"``; none allows any shape.

    Returns:
        The shape.

    Raises:
        ConfigError: if a dimension is missing, left over, or not positive.
    """
    if any(size < 1 for size in shape) or not shape or (meaning and len(shape) != len(meaning)):
        wanted = f"({', '.join(meaning)})" if meaning else "at least one positive size"
        raise ConfigError(f"{model} takes inputs of shape {wanted} and was given {tuple(shape)}; leave out the batch")
    return tuple(shape)
