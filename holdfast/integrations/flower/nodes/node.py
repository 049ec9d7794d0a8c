"""A node of a real federation: runs client functions for the clients it has, and keeps what they remember.

It has a `ClientRuntime` like the simulator, with its own clients' data only. Every request is answered from the disk,
so it does not matter which process answers it, or what became of the last one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch
from flwr.app import RecordDict
from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.errors import ConfigError, FederationError, HoldfastError
from holdfast.federated.blueprint import Blueprint
from holdfast.federated.engine.client_runtime import SECOND, Assignment, ClientRuntime
from holdfast.federated.engine.executors import Executor, ExecutorChoice, default_chunk, make_executor
from holdfast.federated.metrics.scoring import PartName
from holdfast.files import write_atomically
from holdfast.integrations.flower.charter import Charter
from holdfast.integrations.flower.messages.arrays import RejectedError
from holdfast.integrations.flower.messages.wire import Request, array, packed
from holdfast.integrations.flower.nodes.client_state import ClientMemory, ClientStates
from holdfast.integrations.flower.nodes.holdings import open_data, picked, placed
from holdfast.integrations.flower.nodes.ids import parse_ids, share_of
from holdfast.integrations.flower.operation.private import private_files, private_folder
from holdfast.training.state import load_state, save_state

_PARTS = ("train", "validation", "test")
#: File of the state folder with the secret that a roster knows the node by.
PROOF = "token"


class Node:
    """Answers orders.

    Args:
        blueprint: what the federation is built from.
        config: of the node: ``state``, the folder to keep things in; ``data`` and ``clients``, a folder of
            `Clients.save` and the ids of those in it. Without data, ``share`` or ``clients`` say whom of the data set
            in the configuration the node has.
        federation: which one.
        charter: what the federation owns, which the node's model and data are compared with before it joins.

    Raises:
        ConfigError: if the configuration lacks something.
    """

    def __init__(
        self, blueprint: Blueprint, config: Mapping[str, object], federation: str, charter: Charter | None = None
    ) -> None:
        if not isinstance(config.get("state"), str):
            raise ConfigError('the node has no place for personal models; add state="/a/folder" to --node-config')
        self.blueprint, self.config, self.charter = blueprint, config, charter
        private_folder(Path(str(config["state"])))
        self.folder = private_folder(Path(str(config["state"])) / federation)
        self.states = ClientStates(self.folder)

    # ---------------------------------------------------------------------------------------------- answers

    def answer(self, request: Request, content: RecordDict) -> RecordDict:
        """Do what is asked.

        Args:
            request: what.
            content: of the message, with the shared model.

        Returns:
            The reply.
        """
        with private_files(), self.states.held():
            if request.action == "census":
                return self._census(request)
            if request.action == "ready":
                return packed({"number": request.number}, {})
            runtime = self.runtime(request.total)
            size = runtime.message if request.action == "train" else runtime.network.size
            weights = array(content, "weights", (size,), runtime.network.initial.dtype)
            executor = make_executor(runtime, self._choice(runtime))
            try:
                actions = {"train": self._train, "tune": self._tune, "score": self._score}
                return actions[request.action](request, executor, weights)
            finally:
                executor.close()

    def _census(self, request: Request) -> RecordDict:
        """Say whom the node hosts, or why it does not join; the sentence is for the server's log as well."""
        try:
            self._take_ids(request.clients)
            clients, ids = self.holdings
            if self.charter is not None:
                self.charter.model.check_here()
                self.charter.check_data(clients)
                self.charter.check_model(self.blueprint.model(clients))
        except HoldfastError as error:
            return packed({"identity": self._identity(), "refusal": str(error)}, {})
        facts = {part: clients.parts[part].counts.tolist() for part in _PARTS}
        about: dict[str, object] = {
            "classes": clients.classes,
            "task": clients.task,
            "shape": list(clients.input_shape),
        }
        write_atomically(self.folder / "options.json", json.dumps(dict(self.blueprint.options)).encode())
        write_atomically(self.folder / "node.json", json.dumps(dict(self.config)).encode())
        about["charter"] = "" if self.charter is None else self.charter.digest
        return packed({"identity": self._identity(), "clients": ids, **facts, **about}, {})

    def _train(self, request: Request, executor: Executor, weights: Tensor) -> RecordDict:
        runtime, refused, before = executor.runtime, {}, {}
        for client in request.clients:
            try:
                self._own(client)
                before[client] = self.states.before(client, request.number) or ClientMemory({})
            except FederationError as error:
                refused[client] = str(error)
        ids = torch.tensor(sorted(before), dtype=torch.int64)
        _recall(runtime, before)
        drawn = torch.zeros(request.total, dtype=torch.int64)
        for client, state in before.items():
            drawn[client] = state.drawn
        updates = torch.empty(len(ids), runtime.message, dtype=runtime.network.initial.dtype)
        losses = torch.empty(len(ids), dtype=torch.float64)
        for chunk in executor.chunks(ids) if len(ids) else []:
            rows = torch.searchsorted(ids, chunk)
            some, of_some = torch.empty(len(chunk), updates.shape[1], dtype=updates.dtype), losses[rows]
            executor.train([Assignment(request.number, chunk, drawn[chunk])], weights, some, of_some)
            updates[rows], losses[rows] = some, of_some
        draws = dict(zip(ids.tolist(), runtime.draws(ids).tolist(), strict=True))
        for client, state in before.items():
            self.states.keep(client, request.number, self._after(runtime, client, state, state.drawn + draws[client]))
        head = {
            "number": request.number,
            "clients": ids.tolist(),
            "examples": runtime.clients.train.counts[ids].tolist(),
            "refused": list(refused),
            "reasons": list(refused.values()),
        }
        return packed(head, {"updates": updates, "losses": losses})

    def _tune(self, request: Request, executor: Executor, weights: Tensor) -> RecordDict:
        runtime, (label,) = executor.runtime, request.labels
        if label not in runtime.post_hoc:
            raise RejectedError(f"the request is to tune {label!r}, which the configuration does not name")
        known = {client: self.states.last(client) or ClientMemory({}) for client in self._mine(request)}
        todo = {client: state for client, state in known.items() if label not in state.rows}
        if todo:
            executor.personalize(runtime.post_hoc[label], executor.chunks(torch.tensor(sorted(todo))), weights)
        for client, state in todo.items():
            self.states.keep(client, request.number, self._after(runtime, client, state, state.drawn, label))
        return packed({"number": request.number, "clients": sorted(known)}, {})

    def _score(self, request: Request, executor: Executor, weights: Tensor) -> RecordDict:
        ids = torch.tensor(self._mine(request), dtype=torch.int64)
        _recall(executor.runtime, {client: self.states.last(client) for client in ids.tolist()})
        save_state({"weights": weights, "total": request.total}, self.folder / "shared.safetensors")
        part: PartName = "test" if request.part == "test" else "validation"
        scores_of_models = [executor.score_all(part, weights, label or None) for label in request.labels]
        arrays = {
            "loss": torch.stack([scores.loss[ids] for scores in scores_of_models]),
            "correct": torch.stack([scores.correct[ids] for scores in scores_of_models]),
            "count": scores_of_models[0].count[ids],
        }
        return packed({"number": request.number, "clients": ids.tolist()}, arrays)

    # ---------------------------------------------------------------------------------------------- what it has

    @cached_property
    def holdings(self) -> tuple[Clients, list[int]]:
        """The data of the node's clients, one after another, and their ids.

        Clients of a data set in the configuration are copied to the node's folder at the first look: the whole is read
        once, and not for every message.
        """
        copy, ids_file = self.folder / "data", self.folder / "ids.json"
        given = json.loads(ids_file.read_text()) if ids_file.exists() else None
        if (own := open_data(self.config, given)) is not None:
            return own
        if not ids_file.exists():
            every = self.blueprint.load()
            ids = self._chosen(len(every))
            if not copy.exists():
                picked(every, ids).save(copy)
            write_atomically(ids_file, json.dumps(ids).encode())
        return Clients.open(copy), list(json.loads(ids_file.read_text()))

    def _take_ids(self, ids: Sequence[int]) -> None:
        """Take the ids that the roster gives this node, once: personal models are kept by them.

        Raises:
            FederationError: if there are more or fewer than clients in the data, or other ones than before.
        """
        file = self.folder / "ids.json"
        if self.config.get("data") is None or self.config.get("clients") is not None or not ids:
            return
        if not file.exists():
            here = len(Clients.open(Path(str(self.config["data"]))))
            if here != len(ids):
                raise FederationError(
                    f"the data has another number of clients ({here}) than this node was admitted with ({len(ids)}); "
                    f"the operator mends that with `holdfast federation admit ... --clients {here} --replace`"
                )
            write_atomically(file, json.dumps(list(ids)).encode())
        if json.loads(file.read_text()) != list(ids):
            raise FederationError("the server gives this node other ids than before; start a new federation instead")

    def _chosen(self, total: int) -> list[int]:
        share, ids = self.config.get("share"), self.config.get("clients")
        if isinstance(share, str):
            return share_of(share, total)
        if isinstance(ids, str):
            return parse_ids(ids)
        raise ConfigError(
            'the node did not report which clients it hosts; add clients="0-3" or share="0/8" to --node-config'
        )

    def runtime(self, total: int) -> ClientRuntime:
        """Where client functions run: as the simulator's, with other nodes' clients empty."""
        own, ids = self.holdings
        if ids[-1] >= total:
            raise FederationError(f"the node has client {ids[-1]} and the federation {total}; ids go from 0 to below")
        return self.blueprint.assemble(placed(own, ids, total)).runtime()

    def personal(self, label: str, client: int) -> dict[str, Tensor]:
        """The personal model of a client as a state dictionary.

        Raises:
            FederationError: if it has none.
        """
        self._own(client)
        shared = self.folder / "shared.safetensors"
        remembered = self.states.last(client)
        if remembered is None or not shared.exists():
            raise FederationError(f"client {client} has no personal model yet; it has taken part in no finished run")
        known = load_state(shared)
        runtime = self.runtime(known["total"])
        if label not in (models := [name for name in remembered.rows if name != SECOND]):
            there = ", ".join(models) or "none"
            raise FederationError(f"client {client} has no personal model {label!r}; it has {there}")
        _recall(runtime, {client: remembered})
        rows = runtime.personal(label, torch.tensor([client]), known["weights"])
        return dict(runtime.network.load(rows[0]).state_dict())

    def _identity(self) -> str:
        """A secret by which the server knows this node again, whatever Flower calls it after a restart.

        Where the roster knows the node by a token, it is in ``token`` of the state folder.
        """
        given = self.folder.parent / PROOF
        if given.exists():
            return given.read_text().strip()
        file = self.folder / "identity"
        if not file.exists():
            write_atomically(file, secrets.token_hex(16).encode())
        return file.read_text()

    @cached_property
    def _ids(self) -> frozenset[int]:
        """The clients' ids; a node may have a hundred thousand, and each is looked up."""
        return frozenset(self.holdings[1])

    def _own(self, client: int) -> None:
        if client not in self._ids:
            raise FederationError(f"this node does not have client {client}")

    def _mine(self, request: Request) -> list[int]:
        return [client for client in request.clients if client in self._ids]

    def _choice(self, runtime: ClientRuntime) -> ExecutorChoice:
        if runtime.settings.executor == "serial":
            return ExecutorChoice("serial", 1)
        return ExecutorChoice("batched", runtime.settings.chunk or default_chunk(runtime.training))

    def _after(
        self, runtime: ClientRuntime, client: int, before: ClientMemory, drawn: int, tuned: str | None = None
    ) -> ClientMemory:
        moved = runtime.moves if tuned is None else [tuned]
        one = torch.tensor([client])
        return ClientMemory({**before.rows, **{label: runtime.stores[label].read(one)[0] for label in moved}}, drawn)


def _recall(runtime: ClientRuntime, states: Mapping[int, ClientMemory | None]) -> None:
    """Give the runtime what its clients remember."""
    for client, state in states.items():
        for label, row in (state.rows if state is not None else {}).items():
            runtime.stores[label].write(torch.tensor([client]), row[None])
