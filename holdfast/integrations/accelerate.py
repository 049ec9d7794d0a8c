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
            curator.end_step()                              # only needed to save in mid-epoch

Accelerate reads the loader's length anew in every epoch, so the curator needs no ``epoch_size``. The ranks' shares are
those of `CuratedSampler`, not of Accelerate's own sharding, which would fill the last batches up to full size with
repeated examples. `accelerator.save_state` writes ``curator.safetensors`` beside Accelerate's files and
`accelerator.load_state` reads it; Accelerate's `register_for_checkpointing` would unpickle it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from holdfast.errors import MissingDependencyError
from holdfast.integrations.checkpoints import read_curator, write_curator
from holdfast.integrations.dataloader import curated_loader, require_step_size
from holdfast.training.curator import Curator


def prepare(accelerator: Any, curator: Curator, **options: Any) -> DataLoader[Any]:
    """A prepared loader of the curator's batches; the curator's state goes with the accelerator's from now on.

    Args:
        accelerator: the Accelerator.
        curator: what decides. Its ``batch_size`` is what an optimizer step sees, over all processes and accumulated
            batches.
        options: of the DataLoader: ``num_workers``, ``pin_memory``, ``persistent_workers``...

    Returns:
        A loader of `Batch` on the accelerator's device, this process's share only.

    Raises:
        ConfigError: if a policy acts between steps, or the batch sizes don't divide.
    """
    try:
        from accelerate import PartialState  # noqa: PLC0415
        from accelerate.data_loader import prepare_data_loader  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError("accelerate is not installed; pip install 'holdfast[accelerate]'") from error
    processes, accumulated = accelerator.num_processes, accelerator.gradient_accumulation_steps
    size = options.pop("batch_size", None) or max(curator.batch_size // (processes * accumulated), 1)
    require_step_size(curator, size, processes, accumulated, "the accelerator's gradient_accumulation_steps")
    loader = curated_loader(curator, batch_size=size, num_replicas=processes, rank=accelerator.process_index, **options)
    prepared = prepare_data_loader(
        loader, accelerator.device, num_processes=1, process_index=0, put_on_device=accelerator.device_placement
    )
    prepared._is_accelerate_prepared = True

    def save(models: Any, weights: Any, folder: str) -> None:
        if PartialState().is_main_process:  # not the accelerator's: it holds this function, and a cycle delays workers
            write_curator(Path(folder), {"curator": curator.state_dict()})

    def load(models: Any, folder: str) -> None:
        curator.load_state_dict(read_curator(Path(folder))["curator"])

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
    ready = accelerator.prepare(prepared)
    assert isinstance(ready, DataLoader)
    return ready
