"""The processes that share a run: one, or those that `accelerate launch` (or torchrun) has started."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import MissingDependencyError
from holdfast.models.devices import find_device


@dataclass(frozen=True)
class Processes:
    """Some processes that run the same program.

    Attributes:
        index: number of this one.
        count: how many there are.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def started(cls) -> Processes:
        """Those that a launcher has started, connected by accelerate.

        Raises:
            MissingDependencyError: if there are several, and accelerate isn't installed.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return ALONE
        try:
            from accelerate import PartialState  # noqa: PLC0415 - an optional package
        except ImportError as error:
            raise MissingDependencyError(
                "several processes need accelerate; install it with `pip install 'holdfast[llm]'`"
            ) from error
        state = PartialState(cpu=not torch.cuda.is_available())
        return cls(state.process_index, state.num_processes)

    @property
    def is_main(self) -> bool:
        """Whether this is the one that writes files."""
        return self.index == 0

    def device(self, asked: str | None = None) -> torch.device:
        """Where this process computes: what was asked for, see `find_device`, else its own GPU if there are any.

        Raises:
            ConfigError: if torch can't compute on what was asked for.
        """
        if asked is not None:
            return find_device(asked)
        if self.count > 1:
            from accelerate import PartialState  # noqa: PLC0415

            return torch.device(PartialState().device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, in all of them."""
        if self.count == 1:
            return values
        from accelerate.utils import reduce  # noqa: PLC0415

        summed: Tensor = reduce(values, "sum")
        return summed

    def wait(self) -> None:
        """Wait until all are here."""
        if self.count > 1:
            from accelerate import PartialState  # noqa: PLC0415

            PartialState().wait_for_everyone()


#: A process without company.
ALONE = Processes()
