"""Personal models on disk: a row per client, allocated when it is first written, safe to resume from.

Five hundred personal CNNs of 3.27 million parameters are 6.5 GB, so rows live in a sparse memory-mapped file: a client
that was never selected costs nothing, the system's page cache does the rest, and forked workers write their rows
without sending them. Each row has two places. What a checkpoint refers to is never written over: after a checkpoint a
row's first change goes to its other place. A killed federation therefore finds its personal models as they were. The
checkpoint has the SHA-256 of every row that it refers to, and a row that is another is refused.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import CheckpointError
from holdfast.federated.engine.shared_memory import shared_zeros


class RowStore:
    """A table of (clients, width) rows that start as `initial`, in its dtype.

    Args:
        clients: number of rows.
        initial: what a row holds before it is written, shape (width,), on the device where rows are wanted.
        path: the file; a temporary one that vanishes with the process by default.
        writable: whether rows will be written; a file that is only read must be there.

    Raises:
        CheckpointError: if there is a file of another size at `path`, or none and it is only read.
    """

    def __init__(self, clients: int, initial: Tensor, path: Path | None = None, *, writable: bool = True) -> None:
        # The table is the host's memory; rows that are read move to the device, and back when they are written.
        self.initial, self._device = initial.cpu(), initial.device
        initial = self.initial
        self._current = shared_zeros(clients, dtype=torch.int8).numpy()  # 0: never written; 1 and 2: its place
        self._saved = shared_zeros(clients, dtype=torch.int8).numpy()
        self._lasting = path is not None
        self._path = path
        self._digests = np.zeros((clients, hashlib.sha256().digest_size), np.uint8)
        self._unchecked = np.zeros(clients, np.bool_)  # whose row was not compared with its digest yet
        shape, kind = (2, clients, len(initial)), initial.numpy().dtype
        if path is None:
            with tempfile.NamedTemporaryFile(prefix="holdfast-rows-") as file:
                self._table = np.memmap(file.name, kind, "w+", shape=shape)
            return
        if not writable and not path.exists():
            raise CheckpointError(f"{path} with the clients' models is missing; restore it from a copy of the run")
        size = kind.itemsize * shape[0] * shape[1] * shape[2]
        if path.exists() and path.stat().st_size != size:
            raise CheckpointError(
                f"{path} has {path.stat().st_size} bytes and these clients and this model need {size}; give the run "
                "directory of the same federation, or start a new one"
            )
        mode: Literal["r", "r+", "w+"] = "r" if not writable else "r+" if path.exists() else "w+"
        self._table = np.memmap(path, kind, mode, shape=shape)

    def __len__(self) -> int:
        return len(self._current)

    @property
    def written(self) -> Tensor:
        """Which clients have a row of their own, bool of shape (clients,)."""
        return torch.from_numpy(self._current > 0)

    def read(self, clients: Tensor, first: int = 0) -> Tensor:
        """Rows of these clients from column `first` on, a copy of shape (len(clients), width - first) on the device."""
        which = clients.numpy()
        self._compare(which[self._unchecked[which]])
        places = self._current[which]
        rows = torch.from_numpy(self._table[np.maximum(places - 1, 0), which, first:])
        rows[torch.from_numpy(places == 0)] = self.initial[first:]
        return rows.to(self._device)

    def write(self, clients: Tensor, rows: Tensor) -> None:
        """Keep rows of these clients, where no checkpoint refers to."""
        which = clients.numpy()
        places = np.where(self._saved[which] == 1, 2, 1).astype(np.int8)
        self._table[places - 1, which] = rows.cpu().numpy()
        self._current[which] = places
        self._unchecked[which] = False

    def state_dict(self) -> dict[str, Any]:
        """Where the rows are; from now on these are kept until the next call."""
        if self._lasting:
            self._table.flush()
            for client in np.flatnonzero(self._current != self._saved):
                self._digests[client] = np.frombuffer(self._digest(client), np.uint8)
        self._saved[:] = self._current
        places = torch.from_numpy(self._current.copy())
        return (
            {"places": places, "sha256": torch.from_numpy(self._digests.copy())}
            if self._lasting
            else {"places": places}
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to the rows of a checkpoint; each is compared with its digest when it is first read.

        Raises:
            CheckpointError: if the checkpoint is of other clients.
        """
        places, digests = state["places"], state.get("sha256")
        if places.shape != self._current.shape or not ((places >= 0) & (places <= 2)).all():
            raise CheckpointError(
                f"the checkpoint has other clients than {self._path}; restore it from a copy of the run"
            )
        self._current[:] = places.numpy()
        self._saved[:] = self._current
        if digests is not None:  # of a checkpoint made before, rows are taken as they are
            self._digests[:] = digests.numpy()
            self._unchecked[:] = self._current > 0

    def check(self) -> None:
        """Compare every row with its digest now, rather than when it is first read.

        Raises:
            CheckpointError: if one is not what the checkpoint saw.
        """
        self._compare(np.flatnonzero(self._unchecked))

    def _compare(self, clients: Any) -> None:
        for client in clients:
            if self._digest(client) != self._digests[client].tobytes():
                raise CheckpointError(
                    f"the model of client number {client} in {self._path} is not the one that was saved: its "
                    "SHA-256 is another; restore the file from a copy of the run"
                )
            self._unchecked[client] = False

    def _digest(self, client: int) -> bytes:
        return hashlib.sha256(np.ascontiguousarray(self._table[self._current[client] - 1, client])).digest()
