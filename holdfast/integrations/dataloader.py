"""A curator behind a torch DataLoader, for loops that insist on one.

`CuratedSampler` hands out positions and `curated_loader` whole `Batch`es. Neither decides anything: the curator does at
`start` and `end_epoch`, and the sampler reads what it decided. What is drawn is what is left of the curator's epoch,
the same as by iterating the curator under the same seed, so a curator that was restored in mid-epoch continues there.

On several processes every rank draws the same sequence and takes each ``num_replicas``-th draw of it. Where that does
not come out even, the epoch's first draws are repeated until it does (DistributedSampler's rule), so a step of all
ranks together trains on what the curator alone would have put into one batch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from holdfast.data.examples import Examples
from holdfast.errors import CheckpointError, ConfigError, HoldfastWarning
from holdfast.streams import torch_stream
from holdfast.training.curator import Batch, Curator
from holdfast.training.policy import Augmentation


class CuratedSampler(DistributedSampler[Any]):
    """Positions in the order in which the curator's current epoch draws them.

    It is a DistributedSampler by type, which tells Lightning that the ranks' shares are taken care of. The length is
    constant while the curator has an ``epoch_size``; without one it follows the plan.

    Args:
        curator: what decides; it must be started before the sampler is iterated.
        num_replicas: processes that share the epoch; by default those of torch.distributed when iteration starts.
        rank: which of them this is.
    """

    def __init__(self, curator: Curator, *, num_replicas: int | None = None, rank: int | None = None) -> None:
        if (num_replicas is None) != (rank is None):
            raise ConfigError("num_replicas and rank belong together; give both, or neither to ask torch.distributed")
        if num_replicas is not None and rank is not None and not 0 <= rank < num_replicas:
            raise ConfigError(f"rank is {rank} of {num_replicas} processes; give a number from 0 to {num_replicas - 1}")
        self.curator = curator
        self._given = None if num_replicas is None or rank is None else (num_replicas, rank)
        self._told: tuple[int, int] | None = None

    def __len__(self) -> int:
        """Draws of one rank in a whole epoch, also while a restored curator has only a part of one left."""
        batches = self.curator.plan.batches
        total = self.curator.epoch_length if batches is None else len(self.curator) * batches.shape[1]
        return math.ceil(total / self.share[0])

    def __iter__(self) -> Iterator[Any]:
        """This rank's share of what is left of the epoch; looking at it changes nothing."""
        yield from self._draws()[1].tolist()

    def set_epoch(self, epoch: int) -> None:
        """Frameworks call this, some twice per epoch; the curator counts epochs itself, so it only compares notes.

        Args:
            epoch: the framework's epoch.
        """
        here = self.curator.clock.epoch
        if self._told is not None and epoch > self._told[0] and here == self._told[1]:
            warnings.warn(
                f"the training loop went on to epoch {epoch} and the curator is still in its epoch {here}, so the "
                "same examples are drawn again; add the framework's callback, or call curator.end_epoch(model, "
                "optimizer)",
                HoldfastWarning,
                stacklevel=2,
            )
        self._told = (epoch, here)

    def state_dict(self) -> dict[str, Any]:
        """Where the curator stands: the sampler has no position of its own. Call `Curator.end_step` for mid-epoch."""
        return self.curator.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self.curator.load_state_dict(state)

    @property
    def share(self) -> tuple[int, int]:
        """How many processes share the epoch, and which of them this is."""
        if self._given is not None:
            return self._given
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_world_size(), torch.distributed.get_rank()
        return 1, 0

    def _draws(self) -> tuple[Tensor, Tensor]:
        """The numbers of this rank's among the draws left, and their positions; numbers past the end fill up."""
        positions = self.curator.epoch_draws()
        replicas, rank = self.share
        even = math.ceil(len(positions) / replicas) * replicas
        mine = torch.arange(rank, even, replicas)
        return mine, positions[mine % max(len(positions), 1)]


class Draw(NamedTuple):
    """An index that carries all a worker needs, so that workers know nothing of plans.

    Attributes:
        position: of the example.
        weight: in the loss.
        step: the optimizer step it is drawn for.
        place: its place among the draws of that step, over all ranks.
    """

    position: int
    weight: float
    step: int
    place: int


class _DrawSampler(CuratedSampler):
    """The same draws with weights and steps. It runs in the main process, so a new plan is seen by old workers too."""

    def __iter__(self) -> Iterator[Draw]:
        curator = self.curator
        size, batches = curator.batch_size, curator.plan.batches
        if batches is not None and batches.shape[1] != size:
            raise ConfigError(
                f"the plan has mini-batches of {batches.shape[1]} and the curator steps of {size} examples; "
                f"give Curator(batch_size={batches.shape[1]})"
            )
        mine, positions = self._draws()
        steps = (mine // size).clamp_(max=curator.steps_left - 1)
        weights, places = curator.weights(positions), mine - steps * size
        steps += curator.clock.step
        yield from map(Draw, positions.tolist(), weights.tolist(), steps.tolist(), places.tolist())


class _StepSampler(BatchSampler):
    """The curator's steps as batches of one rank, whole or in the parts that are accumulated.

    As in the curator's own loop a lone last example joins the batch before it, because batch norm can't train on one.
    """

    sampler: _DrawSampler

    def __init__(self, sampler: _DrawSampler, batch_size: int) -> None:
        super().__init__(sampler, batch_size, drop_last=False)

    def __iter__(self) -> Iterator[list[Any]]:
        parts = self._parts()
        for _, draws in groupby(self.sampler, key=attrgetter("step")):
            step = list(draws)
            for part in range(min(parts, math.ceil(len(step) / self.batch_size))):
                start = part * self.batch_size
                yield step[start:] if part == parts - 1 else step[start : start + self.batch_size]

    def __len__(self) -> int:
        curator, parts = self.sampler.curator, self._parts()
        before = len(curator) - 1
        last = len(self.sampler) - before * parts * self.batch_size
        return before * parts + min(parts, math.ceil(last / self.batch_size))

    def _parts(self) -> int:
        """Batches of this rank in a full step."""
        return max(self.sampler.curator.batch_size // (self.batch_size * self.sampler.share[0]), 1)


class _DrawnExamples(Dataset[Any]):
    """A whole batch at a time: one indexed read instead of collating examples one by one."""

    def __init__(self, examples: Examples, augment: Augmentation | None, seed: int) -> None:
        self._examples = examples
        self._augment = augment
        self._seed = seed

    def __len__(self) -> int:
        return len(self._examples)

    def __getitems__(self, draws: list[Draw]) -> Batch:
        positions = torch.tensor([draw.position for draw in draws])
        inputs, labels = self._examples.gather(positions)
        if self._augment is not None and isinstance(inputs, Tensor):
            first = draws[0]
            purpose = (first.step, first.place) if first.place else (first.step,)
            inputs = self._augment(inputs, torch_stream(self._seed, "augment", *purpose))
        return Batch(inputs, labels, positions, torch.tensor([draw.weight for draw in draws]))


class CuratedLoader(DataLoader[Any]):
    """The DataLoader that `curated_loader` makes; it tells Lightning that it can be resumed in mid-epoch.

    Args:
        dataset: what gathers.
        sampler: what draws.
        batch_size: examples per batch.
        options: of the DataLoader.
    """

    def __init__(self, dataset: Dataset[Any], sampler: _DrawSampler, batch_size: int, **options: Any) -> None:
        super().__init__(dataset, batch_size=batch_size, sampler=sampler, collate_fn=_as_it_is, **options)
        # A DataLoader takes a sampler or a batch sampler, and frameworks look at both.
        self.__dict__["batch_sampler"] = _StepSampler(sampler, batch_size)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """The epoch's batches; workers start with the first one, because Lightning calls this before it is ready."""
        yield from super().__iter__()

    def state_dict(self) -> dict[str, Any]:
        """Where the curator stands; its state itself is saved by the framework's callback."""
        clock = self._curator.clock
        return {"epoch": clock.epoch, "step": clock.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Check that the curator was restored too."""
        clock = self._curator.clock
        if (state["epoch"], state["step"]) != (clock.epoch, clock.step):
            raise CheckpointError(
                f"the checkpoint is of epoch {state['epoch']}, step {state['step']}, and the curator stands at epoch "
                f"{clock.epoch}, step {clock.step}; add CuratorCallback(curator) to the trainer's callbacks"
            )

    @property
    def _curator(self) -> Curator:
        assert isinstance(self.sampler, CuratedSampler)
        return self.sampler.curator


def curated_loader(
    curator: Curator,
    *,
    batch_size: int | None = None,
    num_replicas: int | None = None,
    rank: int | None = None,
    **options: Any,
) -> CuratedLoader:
    """A DataLoader of the batches that iterating the curator gives, on the CPU, gathered by workers where asked.

    Args:
        curator: what decides. Its ``batch_size`` is what one optimizer step sees, over all processes.
        batch_size: examples per batch of this loader; smaller than the curator's by the number of processes and of
            accumulated batches. By default the curator's, divided by `num_replicas`.
        num_replicas: processes that share the epoch; by default those of torch.distributed when iteration starts.
        rank: which of them this is.
        options: of the DataLoader: ``num_workers``, ``pin_memory``, ``persistent_workers``...

    Returns:
        A loader of `Batch`.

    Raises:
        ConfigError: if a policy acts between steps, the sizes don't divide, or an option is the curator's to set.
    """
    taken = sorted({"dataset", "sampler", "batch_sampler", "shuffle", "drop_last", "collate_fn"} & set(options))
    if taken:
        raise ConfigError(f"{', '.join(taken)} of the loader follows from the curator; leave it out, or set it there")
    refuse_between_steps(curator, "a DataLoader fetches batches ahead")
    sampler = _DrawSampler(curator, num_replicas=num_replicas, rank=rank)
    size = batch_size if batch_size is not None else max(curator.batch_size // (num_replicas or 1), 1)
    if size < 1 or curator.batch_size % (size * (num_replicas or 1)):
        raise ConfigError(
            f"batches of {size} on {num_replicas or 1} processes don't divide the curator's steps of "
            f"{curator.batch_size} examples; choose Curator(batch_size=...) as a multiple"
        )
    # The curator's augmentation is its own business everywhere else, so it has no public name.
    dataset = _DrawnExamples(curator.examples, curator.augment, curator.seed)
    return CuratedLoader(dataset, sampler, size, **options)


def refuse_between_steps(curator: Curator, why: str) -> None:
    """Raise if a policy can change the plan after any step, which a loop that fetches ahead can't follow.

    Args:
        curator: the curator.
        why: what the loop does, for the message.
    """
    names = [member.name for member in curator.chain.members if member.acts_between_steps]
    if names:
        raise ConfigError(
            f"{', '.join(names)} can change the plan after any step, but {why}; "
            "loop over curator.epochs(...) and the curator itself, or use holdfast.training.fit"
        )


def require_epoch_size(curator: Curator, why: str) -> None:
    """Raise if the length of an epoch follows the plan, which a loop that fixes it once would cut short silently.

    Args:
        curator: the curator.
        why: what the loop does, for the message.
    """
    if curator.epoch_size is None:
        raise ConfigError(
            f"the curator's epochs are as long as the active set, but {why}; fix the draws per epoch, for instance "
            f"Curator(epoch_size={len(curator.examples)}): a smaller set is then cycled, a larger one continued"
        )


def require_step_size(curator: Curator, batch_size: int, processes: int, accumulated: int, remedy: str) -> None:
    """Raise if an optimizer step of the loop is not what the curator counts as one.

    Args:
        curator: the curator.
        batch_size: of one batch on one process.
        processes: how many there are.
        accumulated: batches per optimizer step.
        remedy: where to change the loop's side.
    """
    step = batch_size * processes * accumulated
    if step != curator.batch_size:
        raise ConfigError(
            f"an optimizer step sees {batch_size} x {processes} processes x {accumulated} accumulated batches = {step} "
            f"examples and the curator counts {curator.batch_size}; give Curator(batch_size={step}) or change {remedy}"
        )


def _as_it_is(batch: Any) -> Any:
    return batch
