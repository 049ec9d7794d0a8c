"""Random numbers of a training pass, by name: what a client's model drops is the same however clients are run.

A module draws when its forward pass says so: dropout at several places, noise, attention with dropout. While it runs, a
torch function mode answers torch's own random functions from streams that are named by (seed, role, number of the call
in the pass, client, batch). A mask belongs to a call and not to a layer, so one `nn.Dropout` that is used twice has two
masks, and one client, a stack of clients and a function under vmap draw the same numbers.

What torch draws inside a kernel, for instance between the layers of an `nn.LSTM`, can't be answered call by call. There
`seeded` lends torch's default generator a seed of the same name for one pass of one client, and puts it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.overrides import TorchFunctionMode

from holdfast.federated.engine.attention import HeadsCall, attend, attention_weights
from holdfast.federated.engine.stacked_layers import CannotStackError
from holdfast.streams import derive_seed, torch_stream

#: How clients lie in the tensors of a pass: one alone; batches joined, client after client; a dimension hidden by vmap.
Arrangement = Literal["one", "joined", "vmap"]

#: Alpha dropout keeps the mean and variance of SELU activations (Klambauer et al., 2017): minus lambda times alpha.
_FLOOR = -1.7580993408473766

Function = Callable[..., Any]


@dataclass(frozen=True)
class Draws:
    """Names of what each of several clients draws in one pass.

    Attributes:
        seed: of the federation.
        role: of the model that runs: the shared one's draws can't shift those of a personal one.
        clients: ids.
        numbers: how many batches each had drawn before.
    """

    seed: int
    role: str
    clients: tuple[int, ...]
    numbers: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.clients)

    def one(self, place: int) -> Draws:
        """Those of the client at that place alone."""
        return Draws(self.seed, self.role, self.clients[place : place + 1], self.numbers[place : place + 1])

    def generator(self, call: int, place: int) -> Generator:
        """The stream of a call of the client at that place."""
        return torch_stream(self.seed, "dropout", self.role, call, self.clients[place], self.numbers[place])

    def pass_seed(self) -> int:
        """A seed for the first client's whole pass."""
        return derive_seed(self.seed, "pass", self.role, self.clients[0], self.numbers[0])


@contextmanager
def seeded(draws: Draws) -> Iterator[None]:
    """Let torch's default generator draw what the first client draws in this pass; it goes on as before afterwards."""
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(draws.pass_seed())
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


class NamedDraws(TorchFunctionMode):
    """While active, torch's random functions draw by name.

    Args:
        draws: the names.
        arrangement: how the clients lie in tensors.
        place: under vmap, the place of the client among them, a tensor of no dimensions.

    Attributes:
        calls: how many draws there were.
        by_example: whether each was a number per entry with examples first, so that padding a batch shifts none.
    """

    def __init__(self, draws: Draws, arrangement: Arrangement = "one", place: Tensor | None = None) -> None:
        super().__init__()
        self.draws, self.arrangement, self.place = draws, arrangement, place
        self.calls, self.by_example = 0, True

    def __torch_function__(
        self,
        func: Function,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Random functions here, everything else as it is."""
        rule = _RULES.get(func)
        if rule is None:
            return func(*args, **(kwargs or {}))
        return rule(self, func, *args, **(kwargs or {}))

    def uniform(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Numbers from 0 to 1 of a shape with examples first, the next call's of every client."""
        return self.spread(lambda size, generator: torch.rand(size, generator=generator), shape).to(device)

    def spread(self, draw: Callable[[tuple[int, ...], Generator], Tensor], shape: Sequence[int]) -> Tensor:
        """What `draw` gives for each client's share of a shape, put together as clients lie in tensors."""
        call, clients = self.calls, len(self.draws)
        self.calls += 1
        size = tuple(shape)
        if self.arrangement == "joined":
            if not size or size[0] % clients:
                raise CannotStackError("draws random numbers that are not one row per example")
            size = (size[0] // clients, *size[1:])
        # Drawn on the host, whatever the device, so that a run on another device drops the same.
        parts = [draw(size, self.draws.generator(call, place)) for place in range(clients)]
        if self.arrangement == "one":
            return parts[0]
        # Under vmap a plain tensor is indexed with the hidden place, which gives each client its own part.
        return torch.cat(parts) if self.arrangement == "joined" else torch.stack(parts)[self.place]

    def unnamed(self, func: Function) -> Function:
        """The function itself, for a call that has no version by name: it draws from torch's default generator."""
        if self.arrangement != "one":
            raise CannotStackError(
                f"{getattr(func, '__name__', func)} draws in a way that has no version for many clients"
            )
        return func

    def keep(self, shape: Sequence[int], p: float, like: Tensor) -> Tensor:
        """Which entries are kept, bool."""
        return self.uniform(shape, like.device) >= p


# -------------------------------------------------------------------------------------------------- torch's functions


def _dropout(  # noqa: PLR0917 - torch's arguments, after the mode and the function
    mode: NamedDraws, func: Function, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    return _drop(mode, input, input.shape, p, inplace) if training else input


def _feature_dropout(  # noqa: PLR0917
    mode: NamedDraws, func: Function, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (examples, channels, ...)."""
    if training and input.ndim < 3:  # one example without its dimension: what torch does with it has no name
        return cast(Tensor, mode.unnamed(func)(input, p, training, inplace))
    return _drop(mode, input, _channels(input), p, inplace) if training else input


def _alpha_dropout(  # noqa: PLR0917
    mode: NamedDraws, func: Function, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    if not training or p in (0, 1):
        return cast(Tensor, func(input, p, training, inplace))
    kept = mode.keep(_channels(input) if func is F.feature_alpha_dropout else input.shape, p, input).to(input.dtype)
    scale = ((_FLOOR**2 * p + 1) * (1 - p)) ** -0.5
    dropped = input * (kept * scale) + (1 - p - kept) * (_FLOOR * scale)
    return input.copy_(dropped) if inplace else dropped


def _attention(  # noqa: PLR0917
    mode: NamedDraws,
    func: Function,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    if dropout_p == 0:
        return cast(Tensor, func(query, key, value, attn_mask, 0.0, is_causal, **options))
    if options.get("enable_gqa"):
        return cast(Tensor, mode.unnamed(func)(query, key, value, attn_mask, dropout_p, is_causal, **options))
    weights = attention_weights(query, key, attn_mask, is_causal=is_causal, scale=options.get("scale"))
    return _drop(mode, weights, weights.shape, dropout_p) @ value


def _heads(mode: NamedDraws, func: Function, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
    call = HeadsCall.of(*args, **options)
    if not (call.training and call.dropout_p):
        return cast(tuple[Tensor, Tensor | None], func(*args, **options))
    if call.unusual:
        return cast(tuple[Tensor, Tensor | None], mode.unnamed(func)(*args, **options))
    return attend(call, lambda weights: _drop(mode, weights, weights.shape, call.dropout_p))


def _recurrent(  # noqa: PLR0917
    mode: NamedDraws,
    func: Function,
    input: Tensor,
    first: Any,
    weights: Any,
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, ...]:
    """Layer after layer, with dropout between them."""
    if not (train and dropout and num_layers > 1):
        options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return cast(tuple[Tensor, ...], func(input, first, weights, *options))
    if not isinstance(weights, list | tuple):  # a packed sequence, whose arguments are others
        packed = (has_biases, num_layers, dropout, train, bidirectional)
        return cast(tuple[Tensor, ...], mode.unnamed(func)(input, first, weights, *packed))
    starts = list(first) if isinstance(first, list | tuple) else [first]
    each, sides, last = len(weights) // num_layers, 1 + bidirectional, []
    for layer in range(num_layers):
        if layer:
            # Examples first, as everywhere: a mask of (examples, steps, features).
            by_example = input if batch_first else input.transpose(0, 1)
            dropped = _drop(mode, by_example, by_example.shape, dropout)
            input = dropped if batch_first else dropped.transpose(0, 1)
        begin = [start[layer * sides : (layer + 1) * sides] for start in starts]
        own = list(weights[layer * each : (layer + 1) * each])
        input, *ends = func(
            input, begin if len(begin) > 1 else begin[0], own, has_biases, 1, 0.0, train, bidirectional, batch_first
        )
        last.append(ends)
    return (input, *(torch.cat(ends) for ends in zip(*last, strict=True)))


def _noise(mode: NamedDraws, func: Function, *size: Any, **options: Any) -> Tensor:
    """`torch.rand` and `torch.randn`; with a generator of the caller's own they are left alone."""
    if options.get("generator") is not None or "size" in options:
        return cast(Tensor, mode.unnamed(func)(*size, **options))
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return _noise_of(mode, func, shape, options)


def _noise_like(mode: NamedDraws, func: Function, input: Tensor, **options: Any) -> Tensor:
    options = {"dtype": input.dtype, "device": input.device, **options}
    return _noise_of(mode, torch.rand if func is torch.rand_like else torch.randn, input.shape, options)


def _noise_of(mode: NamedDraws, func: Function, shape: Sequence[int], options: dict[str, Any]) -> Tensor:
    device = torch.device(options.pop("device", None) or torch.get_default_device())
    options.pop("memory_format", None)
    mode.by_example &= func is torch.rand  # normal numbers come in pairs, so a longer row has others
    drawn = mode.spread(lambda size, generator: cast(Tensor, func(size, generator=generator, **options)), shape)
    return drawn.to(device)


def _bernoulli(mode: NamedDraws, func: Function, input: Tensor, *args: Any, **options: Any) -> Tensor:
    """`torch.bernoulli`, whose entries are probabilities."""
    if args or options:
        return cast(Tensor, mode.unnamed(func)(input, *args, **options))
    return (mode.uniform(input.shape, input.device) < input).to(input.dtype)


def _drop(mode: NamedDraws, input: Tensor, shape: Sequence[int], p: float, inplace: bool = False) -> Tensor:
    """Inputs times 0 or 1/(1-p), by a mask of that shape; where nothing is dropped, nothing is drawn."""
    if p == 0:
        return input
    if p == 1:
        mode.calls += 1
        return input.zero_() if inplace else input * 0
    scales = mode.keep(shape, p, input).to(input.dtype) / (1 - p)
    return input.mul_(scales) if inplace else input * scales


def _channels(input: Tensor) -> tuple[int, ...]:
    return (*input.shape[:2], *(1 for _ in input.shape[2:]))


_RULES: dict[Function, Function] = {
    F.dropout: _dropout,
    torch.dropout: _dropout,
    **dict.fromkeys((F.dropout1d, F.dropout2d, F.dropout3d), _feature_dropout),
    **dict.fromkeys((F.alpha_dropout, F.feature_alpha_dropout), _alpha_dropout),
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _heads,
    **dict.fromkeys((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), _recurrent),
    **dict.fromkeys((torch.rand, torch.randn), _noise),
    **dict.fromkeys((torch.rand_like, torch.randn_like), _noise_like),
    torch.bernoulli: _bernoulli,
}
