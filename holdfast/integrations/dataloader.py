"""A curator behind a torch DataLoader, for loops that insist on one.

`CuratedSampler` hands out positions and `curated_loader` whole `Batch`es. Neither decides anything: the curator does at
`start` and `end_epoch`, and the sampler reads what it decided. What is drawn is what is left of the curator's epoch,
the same as by iterating the curator under the same seed, so a curator that was restored in mid-epoch continues there.

On several processes every rank draws the same mini-batches and takes its share of each (`holdfast.training.shares`),
with weights such that the mean of ``(weight * losses).mean()`` over ranks and accumulated parts is that of the whole
mini-batch, also where these don't come out even. So N processes train as one does.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch.utils.data import BatchSampler, DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from holdfast.data.examples import Examples
from holdfast.data.worker_processes import Request, augmented
from holdfast.errors import CheckpointError, ConfigError, HoldfastWarning
from holdfast.training.batches import Batch, Drawn
from holdfast.training.curator import Curator
from holdfast.training.policy import Augmentation
from holdfast.training.ranks import ALONE, Ranks
from holdfast.training.shares import Share


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
        self._given = None if num_replicas is None or rank is None else Ranks(rank, num_replicas)
        self._told: tuple[int, int] | None = None

    def __len__(self) -> int:
        """Draws of one rank in a whole epoch, also while a restored curator has only a part of one left."""
        return sum(count * len(self.share_of(size).places) for size, count in self.step_sizes().items())

    def __iter__(self) -> Iterator[Any]:
        """This rank's share of what is left of the epoch; looking at it changes nothing."""
        for drawn in self.curator.drawn():
            yield from drawn.positions[self.share_of(len(drawn.positions)).places].tolist()

    def step_sizes(self) -> dict[int, int]:
        """How many steps of an epoch have mini-batches of which size."""
        curator, steps = self.curator, len(self.curator)
        if curator.plan.batches is not None:
            return {curator.plan.batches.shape[1]: steps}
        last = curator.epoch_length - (steps - 1) * curator.batch_size
        return {curator.batch_size: steps} if last == curator.batch_size else {curator.batch_size: steps - 1, last: 1}

    def share_of(self, size: int) -> Share:
        """This rank's share of a mini-batch of `size`."""
        return Share.of(size, self.ranks)

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
    def ranks(self) -> Ranks:
        """The processes that share the epoch."""
        if self._given is not None:
            return self._given
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return Ranks(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return ALONE


class Draw(NamedTuple):
    """An index that carries all a worker needs, so that workers know nothing of plans.

    Attributes:
        position: of the example.
        weight: in the loss.
        step: the optimizer step it is drawn for.
        place: its place in the mini-batch of that step, over all ranks.
        size: of that mini-batch.
    """

    position: int
    weight: float
    step: int
    place: int
    size: int


class StepSampler(BatchSampler):
    """The curator's steps as batches of one rank, whole or in the parts that are accumulated.

    Args:
        sampler: which curator, which rank.
        batch_size: examples per batch; by default a whole share.
        divides_evenly: whether the loop divides each loss by the batches that its step really has, as the Trainer does,
            and not by those of a full step.
        from_start: hand out what was trained on already as empty batches, for a loop that skips them by itself.
    """

    sampler: CuratedSampler

    def __init__(
        self,
        sampler: CuratedSampler,
        batch_size: int | None = None,
        *,
        divides_evenly: bool = False,
        from_start: bool = False,
    ) -> None:
        self.sampler = sampler
        self.drop_last = False
        self._size = batch_size
        self._divides_evenly = divides_evenly
        self._from_start = from_start

    @property
    def fixed(self) -> bool:
        """Whether a batch size was given, which may not fit the number of processes."""
        return self._size is not None

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """Examples per batch of one rank."""
        return self._size or max(self.sampler.curator.batch_size // self.sampler.ranks.count, 1)

    def __iter__(self) -> Iterator[list[Any]]:
        curator = self.sampler.curator
        if self._from_start:
            yield from [[]] * (curator.clock.step_in_epoch * self.parts)
        for drawn in curator.drawn():
            if drawn.inputs is not None:
                raise ConfigError("the plan keeps augmented inputs, which a loader can't hand on; iterate the curator")
            if curator.plan.batches is not None and len(drawn.positions) != curator.batch_size:
                raise ConfigError(
                    f"the plan has mini-batches of {len(drawn.positions)} and the curator steps of "
                    f"{curator.batch_size} examples; give Curator(batch_size={len(drawn.positions)})"
                )
            yield from self._batches(drawn)

    def __len__(self) -> int:
        sizes = self.sampler.step_sizes().items()
        return sum(count * len(self._part_sizes(self.sampler.share_of(size))) for size, count in sizes)

    @property
    def parts(self) -> int:
        """Batches of this rank in a full step."""
        return max(self.sampler.curator.batch_size // (self.batch_size * self.sampler.ranks.count), 1)

    def _part_sizes(self, share: Share) -> list[int]:
        return share.part_sizes(self.parts, self.batch_size)

    def _batches(self, drawn: Drawn) -> Iterator[list[Draw]]:
        share = self.sampler.share_of(len(drawn.positions))
        positions, weights = drawn.positions[share.places].tolist(), share.weigh(drawn.weights).tolist()
        places, sizes = share.places.tolist(), self._part_sizes(share)
        parts, start = len(sizes) if self._divides_evenly else self.parts, 0
        for size in sizes:
            factor = parts * size / len(places)
            yield [
                Draw(positions[k], factor * weights[k], drawn.step, places[k], share.size)
                for k in range(start, start + size)
            ]
            start += size


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
        first, places = draws[0], torch.tensor([draw.place for draw in draws])
        whole = torch.equal(places, torch.arange(first.size))
        stream = (self._seed, "augment", first.step)
        inputs = augmented(inputs, Request(positions, stream, None if whole else places, first.size), self._augment)
        return Batch(inputs, labels, positions, torch.tensor([draw.weight for draw in draws]))


class CuratedLoader(DataLoader[Any]):
    """The DataLoader that `curated_loader` makes; it tells Lightning that it can be resumed in mid-epoch.

    Args:
        dataset: what gathers.
        sampler: what draws.
        batch_size: examples per batch; by default the rank's share of a step, whatever that is when iteration starts.
        options: of the DataLoader.
    """

    def __init__(self, dataset: Dataset[Any], sampler: CuratedSampler, batch_size: int | None, **options: Any) -> None:
        steps = StepSampler(sampler, batch_size)
        super().__init__(dataset, batch_size=steps.batch_size, sampler=sampler, collate_fn=_as_it_is, **options)
        # A DataLoader takes a sampler or a batch sampler, and frameworks look at both.
        self.__dict__["batch_sampler"] = steps

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
            accumulated batches. By default this process's share of a step.
        num_replicas: processes that share the epoch; by default those of torch.distributed when iteration starts.
        rank: which of them this is.
        options: of the DataLoader: ``num_workers``, ``pin_memory``, ``persistent_workers``...

    Returns:
        A loader of `Batch`.

    Raises:
        ConfigError: if a policy acts between steps and workers fetch ahead, the sizes don't divide, or an option is the
            curator's to set.
    """
    taken = sorted({"dataset", "sampler", "batch_sampler", "shuffle", "drop_last", "collate_fn"} & set(options))
    if taken:
        raise ConfigError(f"{', '.join(taken)} of the loader follows from the curator; leave it out, or set it there")
    if options.get("num_workers"):
        refuse_between_steps(curator, "workers of a DataLoader fetch batches ahead")
    sampler = CuratedSampler(curator, num_replicas=num_replicas, rank=rank)
    count = sampler.ranks.count
    if batch_size is not None and (batch_size < 1 or curator.batch_size % (batch_size * count)):
        raise ConfigError(
            f"batches of {batch_size} on {count} processes don't divide the curator's steps of "
            f"{curator.batch_size} examples; choose Curator(batch_size=...) as a multiple"
        )
    # The curator's augmentation is its own business everywhere else, so it has no public name.
    dataset = _DrawnExamples(curator.examples, curator.augment, curator.seed)
    return CuratedLoader(dataset, sampler, batch_size, **options)


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
