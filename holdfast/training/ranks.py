"""The processes that train together, and how they come to agree.

Ranks are those of torch.distributed: started by torchrun, `accelerate launch`, Lightning or ``fit --processes``. What
they tell each other here are decisions, sizes and model outputs, on the CPU through gloo; a job whose own group speaks
NCCL only gets a second one for this. Values travel as tensors and plain values (``weights_only``): nothing that
arrives can run code. A process that has gone is a sentence on those that are left, not a hang.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holdfast import errors
from holdfast.errors import ConfigError, HoldfastError, ProcessError

_Result = TypeVar("_Result")

#: Rows of outputs that go through the network at once; bounds what a receiver holds besides the result.
_PIECE = 2**24  # bytes

#: The second group of a job whose own can't carry CPU tensors.
_control_groups: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

_alone: ContextVar[bool] = ContextVar("alone", default=False)


@dataclass(frozen=True)
class Ranks:
    """Some processes that run the same program, of which this is one.

    Attributes:
        index: number of this one.
        count: how many there are.
        group: what they talk through; None is torch's default group.
    """

    index: int = 0
    count: int = 1
    group: Any = None

    @classmethod
    def current(cls) -> Ranks:
        """Those of torch.distributed where it is initialised, else this process alone; all must ask at the same time.

        Inside `alone` there is only this process.
        """
        if _alone.get() or not (dist.is_available() and dist.is_initialized()):
            return ALONE
        count = dist.get_world_size()
        return cls(dist.get_rank(), count, _control_group()) if count > 1 else ALONE

    @property
    def is_main(self) -> bool:
        """Whether this is the one that decides and writes files."""
        return self.index == 0

    def __str__(self) -> str:
        return f"process {self.index} of {self.count}"

    # -------------------------------------------------------------------------------------------------- messages

    def broadcast(self, value: Any = None) -> Any:
        """What the main process gives, in all of them: tensors and plain values, nested at will."""
        if self.count == 1:
            return value
        payload = _packed(value) if self.is_main else b""
        size = torch.tensor([len(payload)])
        with lost_processes_named(self):
            dist.broadcast(size, 0, group=self.group)
            sent = torch.frombuffer(bytearray(payload), dtype=torch.uint8) if self.is_main else _bytes(int(size))
            dist.broadcast(sent, 0, group=self.group)
        return value if self.is_main else _unpacked(sent)

    def flag(self, value: bool) -> bool:
        """The main process's answer to a question of yes or no, in all of them."""
        if self.count == 1:
            return value
        answer = torch.tensor([value], dtype=torch.uint8)
        with lost_processes_named(self):
            dist.broadcast(answer, 0, group=self.group)
        return bool(answer)

    def all_gather(self, value: Any) -> list[Any]:
        """What each process gives, in order, in all of them; small things only."""
        if self.count == 1:
            return [value]
        payload = _packed(value)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        with lost_processes_named(self):
            dist.all_gather(sizes, torch.tensor([len(payload)]), group=self.group)
            longest = int(torch.cat(sizes).max())
            mine = torch.frombuffer(bytearray(payload.ljust(longest, b"\0")), dtype=torch.uint8)
            parts = [_bytes(longest) for _ in range(self.count)]
            dist.all_gather(parts, mine, group=self.group)
        return [_unpacked(part[: int(size)]) for part, size in zip(parts, sizes, strict=True)]

    def rows_of(self, source: int, mine: Tensor, like: Tensor, *, to_all: bool = True) -> Iterator[tuple[int, Tensor]]:
        """The rows that one process has, piece by piece: to all processes, or to the main one only.

        Args:
            source: who has them.
            mine: the rows, of the source's; ignored elsewhere.
            like: what pieces are received into: a tensor of no rows with their shape and type, on receivers.
            to_all: whether everybody gets them.

        Yields:
            The first row's number, and the rows.
        """
        rows = torch.tensor([len(mine) if self.index == source else 0])
        with lost_processes_named(self):
            dist.broadcast(rows, source, group=self.group)
            step = max(_PIECE // max(like[:0].new_zeros(1, *like.shape[1:]).nbytes, 1), 1)
            for start in range(0, int(rows), step):
                count = min(step, int(rows) - start)
                sends = self.index == source
                piece = mine[start : start + count].contiguous() if sends else like.new_empty(count, *like.shape[1:])
                if to_all:
                    dist.broadcast(piece, source, group=self.group)
                elif sends:
                    dist.send(piece, 0, group=self.group)
                elif self.is_main:
                    dist.recv(piece, source, group=self.group)
                yield start, piece

    def wait(self) -> None:
        """Wait until all are here."""
        self.all_gather(None)

    # ------------------------------------------------------------------------------------------------- agreement

    def together(self, work: Callable[[], _Result]) -> _Result:
        """Do what every process does at the same time; where one of them fails, all of them do, by its sentence."""
        if self.count == 1:
            return work()
        failed: Exception | None = None
        result: _Result | None = None
        try:
            result = work()
        except Exception as error:
            failed = error
        first = next((one for one in self.all_gather(described(failed)) if one is not None), None)
        if failed is not None:
            raise failed
        if first is not None:
            raise as_error(first)
        return result  # type: ignore[return-value]

    def from_main(self, work: Callable[[], _Result]) -> _Result:
        """What the main process gets by some work, in all of them; its error, if it fails, too."""
        if self.count == 1:
            return work()
        if self.is_main:
            try:
                result = work()
            except Exception as error:
                self.broadcast({"error": described(error)})
                raise
            self.broadcast({"result": result})
            return result
        answer = self.broadcast()
        if "error" in answer:
            raise as_error(answer["error"])
        return answer["result"]  # type: ignore[no-any-return]

    def main_first(self, work: Callable[[], _Result]) -> _Result:
        """Let the main process do something before the others: fetch files that they then find."""
        if self.is_main:
            result = self.together(work)
            self.together(lambda: None)
            return result
        self.together(lambda: None)
        return self.together(work)

    def expect_same(self, facts: Mapping[str, Any], remedy: str) -> None:
        """Raise, on all processes, where they differ in something.

        Args:
            facts: plain values by what they are called in the message.
            remedy: what to do, for the message.

        Raises:
            ConfigError: names what differs, with the values of two processes.
        """
        everybody = self.all_gather(dict(facts))
        for name, value in everybody[0].items():
            other = next((place for place, theirs in enumerate(everybody) if theirs.get(name) != value), None)
            if other is not None:
                raise ConfigError(
                    f"the processes differ in {name}: {value} in process 0, {everybody[other].get(name)} in process "
                    f"{other}; {remedy}"
                )

    # ---------------------------------------------------------------------------------------------------- models

    def average_gradients(self, parameters: Sequence[Tensor], stop: bool = False) -> bool:
        """Give all processes the mean of their gradients, in one message in a fixed order, the same bits everywhere.

        A parameter without gradient counts as zero where another process has one, and stays without where none has.

        Args:
            parameters: in the same order everywhere.
            stop: whether this process was asked to end.

        Returns:
            Whether any process was, so that all end after the same step.
        """
        if self.count == 1:
            return stop
        wanted = 0.0
        for dtype in sorted({parameter.dtype for parameter in parameters}, key=str):
            same = [parameter for parameter in parameters if parameter.dtype == dtype]
            parts = [(torch.zeros_like(one) if one.grad is None else one.grad).reshape(-1) for one in same]
            has = torch.tensor([stop, *(one.grad is not None for one in same)], dtype=dtype, device=same[0].device)
            flat = torch.cat([has, *parts])
            with lost_processes_named(self):
                dist.all_reduce(flat, group=self.group if flat.device.type == "cpu" else None)
            had = flat[: len(has)].tolist()
            wanted += had[0]
            mean = flat[len(has) :].div_(self.count)
            for one, some, part in zip(
                same, had[1:], mean.split_with_sizes([part.numel() for part in parts]), strict=True
            ):
                if some:
                    one.grad = part.view_as(one) if one.grad is None else one.grad.copy_(part.view_as(one))
        return wanted > 0

    def total(self, values: Tensor) -> Tensor:
        """The sum over the processes, in all of them; values are on the device that trains."""
        if self.count == 1:
            return values
        total = values.clone()
        with lost_processes_named(self):
            dist.all_reduce(total, group=self.group if values.device.type == "cpu" else None)
        return total

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the processes, in all of them; values are on the device that trains."""
        return self.total(values) / self.count if self.count > 1 else values

    def share_buffers(self, model: nn.Module) -> None:
        """Give all processes the main one's buffers: batch norm has seen another share of the data in each."""
        if self.count > 1:
            self._share([buffer for buffer in model.buffers() if buffer.numel()])

    def share_weights(self, model: nn.Module) -> None:
        """Give all processes the main one's parameters and buffers, to the bit."""
        if self.count > 1:
            self._share([tensor for tensor in model.state_dict().values() if isinstance(tensor, Tensor)])

    def _share(self, tensors: Sequence[Tensor]) -> None:
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            same = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1).cpu() for tensor in same])
            with lost_processes_named(self):
                dist.broadcast(flat.view(torch.uint8), 0, group=self.group)
            if not self.is_main:
                for tensor, part in zip(same, flat.split_with_sizes([tensor.numel() for tensor in same]), strict=True):
                    tensor.copy_(part.view_as(tensor))


#: A process without company.
ALONE = Ranks()


@contextmanager
def alone() -> Iterator[None]:
    """Inside the block this process has no company: a policy that trains a model of its own does it by itself."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


@contextmanager
def lost_processes_named(ranks: Ranks) -> Iterator[None]:
    """Turn what gloo and NCCL raise when a process has gone, or is late by the group's timeout, into a sentence.

    Put it around a loop of your own, too, where gradients are averaged by DistributedDataParallel.

    Args:
        ranks: this process and the others.

    Raises:
        ProcessError: instead of the raw error.
    """
    try:
        yield
    except HoldfastError:
        raise
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        reason = " ".join(str(error).split())[:160]
        raise ProcessError(
            f"{ranks} can't go on: another process of this training has ended or does not answer ({reason}); look at "
            "what that one printed, then continue from the last checkpoint"
        ) from error


def is_lost_connection(error: BaseException) -> bool:
    """Whether an error says that another process has gone or is late."""
    if isinstance(error, dist.DistError):
        return True
    words = ("gloo", "connection closed", "connection reset", "timed out", "timeout", "nccl", "broken pipe", "peer")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)


def unwrapped(model: nn.Module | None) -> nn.Module | None:
    """The model inside DistributedDataParallel, whose own forward pass would talk to the other processes.

    Raises:
        ConfigError: if the weights are cut up over the processes, so that none of them can run the model alone.
    """
    if model is None:
        return None
    if isinstance(model, nn.parallel.DistributedDataParallel):
        inner = model.module
        assert isinstance(inner, nn.Module)
        return inner
    if any(type(part).__name__ in ("FullyShardedDataParallel", "FSDPModule") for part in type(model).__mro__) or any(
        type(weight).__name__ == "DTensor" for weight in model.parameters()
    ):
        raise ConfigError(
            "the model's weights are cut up over the processes (FSDP) and policies look at whole models; use "
            "DistributedDataParallel, or give the curator no model where the policy doesn't look at it"
        )
    return model


def own_device(device: torch.device, ranks: Ranks) -> torch.device:
    """Of several GPUs each process of a machine takes its own, by the number that its launcher gave it."""
    if ranks.count == 1 or device.type == "cpu" or ":" in str(device):
        return device
    devices = max(torch.accelerator.device_count(), 1)
    return torch.device(device.type, int(os.environ.get("LOCAL_RANK", ranks.index)) % devices)


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A short hash of named tensors: their names, types, shapes and bytes."""
    state = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        state.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        state.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()


def _control_group() -> Any:
    """A group that carries CPU tensors: torch's own if it does, else one beside it, made once."""
    world = dist.group.WORLD
    if "gloo" in str(dist.get_backend_config(world)):
        return None
    if world not in _control_groups:
        _control_groups[world] = dist.new_group(backend="gloo")
    return _control_groups[world]


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(_apart(value), buffer)
    return buffer.getvalue()


def _apart(value: Any) -> Any:
    """The same with memory of its own for every tensor: those of one checkpoint share bytes, which torch won't save."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _apart(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_apart(item) for item in value)
    return value


def _unpacked(sent: Tensor) -> Any:
    return torch.load(io.BytesIO(sent.numpy().tobytes()), weights_only=True)


def _bytes(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.uint8)


def described(error: Exception | None) -> list[str] | None:
    """An error as it travels: the name of its class and its sentence."""
    if error is None:
        return None
    kind = type(error).__name__
    return [kind, str(error) if isinstance(error, HoldfastError) else f"{kind}: {error}"]


def as_error(described: Sequence[str]) -> HoldfastError:
    """The error that another process described."""
    kind = getattr(errors, described[0], HoldfastError)
    return kind(described[1]) if issubclass(kind, HoldfastError) else HoldfastError(described[1])
