"""What a module does with a few examples: whether it draws, whether examples interact, and how clients can be stacked.

Nothing here asks what a module is made of. It is run, for two clients with different weights, in training and in
evaluation, and each way to run several clients at once is held against running them one after another: outputs,
gradients, running statistics. A way that raises or differs is not taken. What is found is kept, and it is found before
worker processes are forked, so all of them go the same way.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from holdfast.errors import ConfigError, HoldfastWarning
from holdfast.federated.engine.draws import Draws, NamedDraws
from holdfast.federated.engine.stacked_layers import CannotStackError
from holdfast.streams import torch_stream

if TYPE_CHECKING:
    from holdfast.federated.engine.network import Network
    from holdfast.federated.engine.running_module import Mode

#: Clients and examples of each that are tried.
_CLIENTS, _EXAMPLES = 2, 3
#: How far results of two ways may be apart, relative to the largest, by the bytes of a number.
_CLOSE = {8: 1e-8, 4: 1e-4, 2: 5e-2}
#: How many times what one digit of the weights moves two orders of adding up may be apart.
_MORE_ROUNDING = 64


@dataclass(frozen=True)
class Way:
    """How several clients run at once.

    Attributes:
        name: their batches ``joined`` to one, by ``vmap``, or one after another, as ``rows``.
        why: why they can't be stacked, one line; empty where they can.
        padding_matters: whether examples of weight zero change gradients of the others, as with an embedding whose
            gradient is scaled by how often a word is there.
    """

    name: Literal["joined", "vmap", "rows"]
    why: str = ""
    padding_matters: bool = False


@dataclass(frozen=True, eq=False)
class Randomness:
    """What else but parameters and examples a pass depends on.

    Attributes:
        named: whether it draws by functions that can be answered by name.
        unnamed: whether it draws from torch's default generator.
        in_evaluation: whether it draws in evaluation too.
        batch_dependent: whether examples interact in training, or the number of examples shifts what is drawn.
        scores_depend_on_batch: whether they do in evaluation.
        moved: buffers, besides running statistics, that a training pass changes, as they were before it.
    """

    named: bool
    unnamed: bool
    in_evaluation: bool
    batch_dependent: bool
    scores_depend_on_batch: bool
    moved: Mapping[str, Tensor]

    @property
    def plain(self) -> bool:
        """Whether there is nothing to look after in a pass."""
        return not (self.named or self.unnamed or self.moved)

    def put_back(self, module: nn.Module) -> None:
        """Set changed buffers back, in place: what one client's pass leaves there is nothing to the next."""
        for name, value in self.moved.items():
            module.get_buffer(name).copy_(value)


def look_at_randomness(network: Network, inputs: Tensor) -> Randomness:
    """Run a few of `inputs`, shape (n, ...), through the module with its initial weights.

    Args:
        network: the module.
        inputs: examples.

    Raises:
        Whatever the module raises.
    """
    few = _few(inputs, _EXAMPLES)
    before = {name: value.clone() for name, value in network.buffers().items()}
    others = _other_generators()
    passes = {mode: _Pass.of(network, mode, few) for mode in ("train", "eval")}
    moved = {name: value for name, value in before.items() if not torch.equal(value, network.buffers()[name])}
    found = Randomness(
        named=any(each.named for each in passes.values()),
        unnamed=any(each.unnamed for each in passes.values()),
        in_evaluation=passes["eval"].draws,
        batch_dependent=passes["train"].depends_on_batch(network, few),
        # What is drawn for an example depends on its place, so a client's examples are scored together.
        scores_depend_on_batch=passes["eval"].draws or passes["eval"].depends_on_batch(network, few),
        moved=moved,
    )
    found.put_back(network.module)
    again = _Pass.of(network, "train", few).outputs
    found.put_back(network.module)
    if others != _other_generators() or not close(again, passes["train"].outputs):
        warnings.warn(
            f"the model {network.called} draws from Python's or NumPy's generator, or from one of its own, so its "
            "results can't be repeated; draw by torch's functions without a generator",
            HoldfastWarning,
            stacklevel=2,
        )
    return found


@dataclass(frozen=True, eq=False)
class _Pass:
    """A pass of one client and what it drew."""

    mode: Mode
    outputs: Tensor
    named: bool
    unnamed: bool
    by_example: bool

    @classmethod
    def of(cls, network: Network, mode: Mode, examples: Tensor) -> _Pass:
        draws = NamedDraws(_names(1))
        before = torch.default_generator.get_state()
        try:
            outputs = network.trial(mode, examples, draws)
            drew = not torch.equal(before, torch.default_generator.get_state())
        finally:
            torch.default_generator.set_state(before)
        return cls(mode, outputs, named=draws.calls > 0, unnamed=drew, by_example=draws.by_example)

    @property
    def draws(self) -> bool:
        """Whether it drew anything."""
        return self.named or self.unnamed

    def depends_on_batch(self, network: Network, examples: Tensor) -> bool:
        """Whether the first examples fare otherwise without the last."""
        if self.unnamed or not self.by_example:
            return True
        fewer = _Pass.of(network, self.mode, examples[:-1]).outputs
        return fewer.shape[1:] != self.outputs.shape[1:] or not close(fewer, self.outputs[: len(fewer)])


def study_ways(network: Network, inputs: Tensor, known: Randomness) -> Way:
    """The fastest way that gives what running clients one after another gives.

    Args:
        network: the module.
        inputs: examples, shape (n, ...).
        known: what it draws.
    """
    if known.unnamed:
        return Way("rows", f"{network.called} draws random numbers where torch gives them no name (inside a kernel)")
    if known.moved:
        return Way("rows", f"{network.called} changes its buffer {next(iter(known.moved))!r} in a training pass")
    few = _few(inputs, _CLIENTS * _EXAMPLES)
    few = few.view(_CLIENTS, _EXAMPLES, *few.shape[1:])
    rows = network.initial.repeat(_CLIENTS, 1)
    noise = torch.randn(_CLIENTS, network.trainable, generator=torch_stream(0, "study"))
    rows[:, : network.trainable] += 0.02 * noise.to(rows)
    trial = _Trial(network, rows, few, _results(network, "rows", rows, few))
    # Joined batches would be normalised together, and move the module's own statistics.
    if _padding_matters(network, rows[:1], few[:1]):
        return Way("vmap", padding_matters=True) if trial.passes("vmap") else Way("rows", trial.reason)
    if not network.normalises_batches and trial.passes("joined", RefuseHostReads()):
        return Way("joined")
    if trial.passes("vmap"):
        # Where vmap, which refuses to read examples' values, has nothing to refuse, what is read is the module's own.
        joinable = trial.read_values and trial.passes("joined")
        return Way("joined" if joinable else "vmap")
    return Way("rows", f"{network.called} can't be stacked ({trial.reason})")


def _padding_matters(network: Network, row: Tensor, inputs: Tensor) -> bool:
    """Whether a last example of weight zero changes the gradient; where a batch's examples interact, it may."""
    if network.batch_dependent:
        return False  # known, and not padded
    padded = _results(network, "rows", row, inputs, counted=inputs.shape[1] - 1)[1]
    return not close(padded, _results(network, "rows", row, inputs[:, :-1])[1])


@dataclass(eq=False)
class _Trial:
    """Ways that are tried, and why the last one failed."""

    network: Network
    rows: Tensor
    inputs: Tensor
    wanted: list[Tensor]
    reason: str = ""
    read_values: bool = False

    def passes(self, way: Literal["joined", "vmap"], guard: TorchFunctionMode | None = None) -> bool:
        """Whether a way gives what is wanted."""
        try:
            with guard or ExitStack(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = _results(self.network, way, self.rows, self.inputs)
        except Exception as error:  # whatever it is, the module runs for one client
            self.read_values = isinstance(error, ReadsValuesError)
            self.reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            return False
        self.reason = "stacked clients get other results"
        same = zip(found, self.wanted, strict=True)
        if all(close(one, other) for one, other in same):
            return True
        near = zip(found, self.wanted, self.by_rounding, strict=True)
        return all(close(one, other, besides=_MORE_ROUNDING * moved) for one, other, moved in near)

    @cached_property
    def by_rounding(self) -> list[float]:
        """How far each result moves when the last digit of every weight does.

        A batch whose examples are nearly alike is normalised by nearly nothing, so that a digit of rounding is seen
        far from the end; a way that adds up in another order is not wrong for that.
        """
        digit = torch.finfo(self.rows.dtype).eps
        signs = torch.randn(self.rows.shape, generator=torch_stream(0, "study", "rounding")).sign().to(self.rows)
        moved = _results(self.network, "rows", self.rows * (1 + digit * signs), self.inputs)
        return [
            float((one - other).nan_to_num().abs().max()) if one.numel() else 0.0
            for one, other in zip(moved, self.wanted, strict=True)
        ]


class ReadsValuesError(CannotStackError):
    """A module looks at values to decide what to do."""


def _results(network: Network, way: str, rows: Tensor, inputs: Tensor, counted: int | None = None) -> list[Tensor]:
    """Everything that a way must give: outputs, gradients and statistics in training, outputs in evaluation.

    With `counted`, only so many first examples have a part in the gradient.
    """
    at, moving = rows.clone().requires_grad_(), rows.clone()
    with torch.enable_grad():
        outputs = network.run(way, "train", at, inputs, _names(len(rows)), moving)
        towards = torch.randn(outputs.shape[2:], generator=torch_stream(0, "study", "outputs")).to(outputs)
        with _refuse_dropping_again(network):
            (gradient,) = torch.autograd.grad((outputs * towards)[:, :counted].sum(), at)
    with torch.no_grad():
        evaluated = network.run(way, "eval", rows, inputs)
    return [outputs.detach(), gradient, moving, evaluated]


@contextmanager
def _refuse_dropping_again(network: Network) -> Iterator[None]:
    """Around a backward pass: no module of a model that draws may run in it, since there draws have no names.

    Raises:
        ConfigError: if one does, as with `torch.utils.checkpoint`.
    """
    again: list[str] = []
    hook = register_module_forward_pre_hook(lambda module, given: again.append(type(module).__name__))
    try:
        yield
    finally:
        hook.remove()
    if again and network.draws_by_name:
        raise ConfigError(
            f"the model {network.called} computes {again[0]} again in the backward pass (torch.utils.checkpoint), "
            "where dropout would drop something else; turn checkpointing off"
        )


def close(one: Tensor, other: Tensor, besides: float = 0.0) -> bool:
    """Whether two results are the same but for rounding, and for `besides`."""
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    largest = float(other.nan_to_num().abs().max()) if other.numel() else 0.0
    tolerance = _CLOSE.get(one.element_size(), 1e-4) * max(largest, 1e-2) + besides
    return torch.allclose(one, other, rtol=0, atol=tolerance, equal_nan=True)


def _other_generators() -> tuple[Any, Any]:
    """States of Python's and NumPy's global generators, which some modules draw from."""
    return random.getstate(), repr(np.random.get_state(legacy=False)["state"]["key"].tolist())  # noqa: NPY002


def _names(clients: int) -> Draws:
    return Draws(0, "study", tuple(range(clients)), (0,) * clients)


def _few(inputs: Tensor, number: int) -> Tensor:
    """So many examples; where there are fewer, some are repeated, with a little noise, so that no two are the same."""
    few = inputs[torch.arange(number, device=inputs.device) % len(inputs)]
    if len(inputs) < number and few.is_floating_point():
        few = few + 0.1 * torch.randn(few.shape, generator=torch_stream(0, "study", "inputs")).to(few)
    return few


class RefuseHostReads(TorchFunctionMode):
    """While active, a module that looks at values to decide what to do is refused.

    Joined batches would be looked at together, and one client's examples would decide for the others.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Refuse reads of values, let everything else be."""
        masked = func is Tensor.__getitem__ and isinstance(args[1], Tensor) and args[1].dtype == torch.bool
        if func in _READS or masked:
            raise ReadsValuesError("it decides by values")
        return func(*args, **(kwargs or {}))


_READS = {
    *(Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.item, Tensor.tolist, Tensor.numpy),
    *(Tensor.nonzero, torch.nonzero, Tensor.masked_select, torch.masked_select, Tensor.unique, torch.unique),
}
