"""A curator inside Accelerate: a prepared loader in which every process has its share, saved with the accelerator.

::

    accelerator = Accelerator()
    model, optimizer = accelerator.prepare(model, optimizer)
    loader = prepare(accelerator, curator)
    for epoch in curator.epochs(20, accelerator.unwrap_model(model), optimizer):
        for x, y, positions, weight in loader:
            losses = F.cross_entropy(model(x), y, reduction="none")
            accelerator.backward((weight * losses).mean())
            optimizer.step()
            optimizer.zero_grad()
            curator.end_step(accelerator.unwrap_model(model), optimizer)  # for CREST, and to save in mid-epoch

Accelerate reads the loader's length anew in every epoch, so the curator needs no ``epoch_size``. The ranks' shares are
those of `CuratedSampler`, not of Accelerate's own sharding, which would fill the last batches up to full size with
repeated examples. `accelerator.save_state` writes ``curator.safetensors`` beside Accelerate's files and
`accelerator.load_state` reads it; Accelerate's `register_for_checkpointing` would unpickle it. With three processes or
more, training goes on from there with the same bits if the prepared model was given to
`holdfast.training.gradient_order.average_in_order`; Accelerate shows it to nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from holdfast.errors import MissingDependencyError
from holdfast.integrations.checkpoints import read_curator, write_curator
from holdfast.integrations.dataloader import CuratedLoader, curated_loader, refuse_between_steps, require_step_size
from holdfast.training.batches import Batch
from holdfast.training.curator import Curator
from holdfast.training.model_outputs import to_device


def prepare(accelerator: Any, curator: Curator, **options: Any) -> DataLoader[Any] | PromptLoader:
    """A prepared loader of the curator's batches; the curator's state goes with the accelerator's from now on.

    Args:
        accelerator: the Accelerator.
        curator: what decides. Its ``batch_size`` is what an optimizer step sees, over all processes and accumulated
            batches.
        options: of the DataLoader: ``num_workers``, ``pin_memory``, ``persistent_workers``...

    Returns:
        A loader of `Batch` on the accelerator's device, this process's share only.

    Raises:
        ConfigError: if the batch sizes don't divide, or a policy acts between steps and batches are fetched ahead.
    """
    try:
        from accelerate.data_loader import prepare_data_loader  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError("accelerate is not installed; pip install 'holdfast[accelerate]'") from error
    processes, accumulated = accelerator.num_processes, accelerator.gradient_accumulation_steps
    size = options.pop("batch_size", None)
    if accumulated > 1 or size is not None:
        size = size or max(curator.batch_size // (processes * accumulated), 1)
        require_step_size(curator, size, processes, accumulated, "the accelerator's gradient_accumulation_steps")
    loader = curated_loader(curator, batch_size=size, num_replicas=processes, rank=accelerator.process_index, **options)
    if curator.chain.between_steps:
        # Accelerate's loader fetches one batch ahead, which would be of the plan before; this one doesn't.
        if accumulated > 1:
            refuse_between_steps(curator, "accumulated batches of Accelerate are cut off at the end of its own loader")
        _save_with(accelerator, curator)
        return PromptLoader(loader, accelerator.device)
    prepared = prepare_data_loader(
        loader, accelerator.device, num_processes=1, process_index=0, put_on_device=accelerator.device_placement
    )
    prepared._is_accelerate_prepared = True

    _save_with(accelerator, curator)
    ready = accelerator.prepare(prepared)
    assert isinstance(ready, DataLoader)
    return ready


class PromptLoader:
    """Batches on the device, each fetched when it is asked for and not before, so that they follow every plan.

    Args:
        loader: of `Batch`.
        device: where to.
    """

    def __init__(self, loader: CuratedLoader, device: Any) -> None:
        self._loader = loader
        self._device = device

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        for inputs, labels, positions, weights in self._loader:
            moved = to_device(inputs, self._device), labels.to(self._device)
            yield Batch(*moved, positions, weights.to(self._device))


def _save_with(accelerator: Any, curator: Curator) -> None:
    from accelerate import PartialState  # noqa: PLC0415

    def save(models: Any, weights: Any, folder: str) -> None:
        if PartialState().is_main_process:  # not the accelerator's: it holds this function, and a cycle delays workers
            write_curator(Path(folder), {"curator": curator.state_dict()})

    def load(models: Any, folder: str) -> None:
        curator.load_state_dict(read_curator(Path(folder))["curator"])

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
