"""Secure aggregation: the server learns the mean of the updates and no single one (SecAgg+, Bell et al., 2020).

Clients add masks to their updates that cancel in the sum. A rule that sorts, compares or weighs single updates has
nothing to work on then: `check_secure` refuses it. The protocol is Flower's own. Its server half was written for
Flower's older strategies; `SecureGrid` drives its four stages from the Message API, so any strategy that averages can
stand on it::

    strategy = RobustStrategy("mean")                                    # ServerApp
    strategy.start(SecureGrid(grid), initial_arrays, num_rounds=3)

    app = ClientApp(mods=[*secure_mods()])                               # ClientApp

Updates travel as fixed-point numbers with random rounding, so runs agree to about 1e-7 and not to the bit. Clients
report no metrics: those would be readable. What a hidden update contains can't be checked, so one malicious client can
move the mean anywhere. Flower 1.41 folds the 256 bits of its seeds and keys into 32 before it makes masks of them,
which a server tries out in minutes; here masks are the keystream of ChaCha20 with all of them (`long_masks`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.errors import ConfigError, DataError, MissingDependencyError
from holdfast.federated.aggregation import Aggregator, Mean
from holdfast.federated.objectives import FederatedObjective
from holdfast.integrations.flower.messages.replies import SentModel, only

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
    from flwr.client.mod import secaggplus_mod
    from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
    from flwr.compat.common.recorddict_compat import fitres_to_recorddict
    from flwr.server.compat.legacy_context import LegacyContext
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
    from flwr.server.workflow.constant import Key as WorkflowKey
    from flwr.server.workflow.secure_aggregation.secaggplus_workflow import SecAggPlusWorkflow, WorkflowState
    from flwr.serverapp import Grid
except ImportError as error:
    raise MissingDependencyError(
        "secure aggregation needs Flower, which is not installed; pip install 'holdfast[flower]'"
    ) from error

_log = logging.getLogger(__name__)

#: Record of a message that tells clients how to hide their update.
_HIDING = "holdfast.secure"
#: Flower's two halves of the protocol.
_CLIENT_HALF = "flwr.client.mod.secure_aggregation.secaggplus_mod"
_SERVER_HALF = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"


def check_secure(aggregator: Aggregator, objective: FederatedObjective | None = None) -> None:
    """Refuse what can't be computed from a sum.

    Args:
        aggregator: how updates are combined.
        objective: what the shared model is trained for; FedAvg by default.

    Raises:
        ConfigError: unless both need nothing but the mean of the updates.
    """
    if not isinstance(aggregator, Mean):
        raise ConfigError(
            f"secure aggregation shows the server only the sum of the updates, and {aggregator.label} needs every "
            "single one; use the mean, or leave secure aggregation off"
        )
    if objective is not None and (objective.weighs or objective.needs_losses):
        raise ConfigError(
            f"secure aggregation hides the losses of single clients, and {objective.name} weighs clients by them; "
            "use fedavg, or leave secure aggregation off"
        )
    if objective is not None and objective.second is not None:
        raise ConfigError(
            f"for {objective.name} clients send a second vector, which secure aggregation does not hide; use fedavg, "
            "or leave secure aggregation off"
        )


def secure_mods() -> list[Callable[..., Message]]:
    """The mods of a ClientApp whose updates are to be hidden; other mods come behind them."""
    return [_masked, _send_hidden]


def long_masks(seed: bytes, num_range: int, dimensions_list: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
    """Masks in place of Flower's: numbers below `num_range`, a power of two up to 2^32, of each shape.

    They are the keystream of ChaCha20 (RFC 8439) under the SHA-256 of the seed, which Flower draws from the system's
    generator, or agrees on by elliptic curves: 256 bits of it, all of which count.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms  # noqa: PLC0415

    if num_range & (num_range - 1) or not 0 < num_range <= 2**32:
        raise ConfigError(f"masks are numbers below a power of two up to 2^32, not below {num_range}")
    stream = Cipher(algorithms.ChaCha20(hashlib.sha256(seed).digest(), bytes(16)), mode=None).encryptor()
    masks = []
    for shape in dimensions_list:
        words = np.frombuffer(stream.update(bytes(4 * int(np.prod(shape, dtype=np.int64)))), "<u4")
        masks.append((words.astype(np.int64) % num_range).reshape(shape))
    return masks


@contextlib.contextmanager
def _long_masks_in(module: str) -> Iterator[None]:
    """Let Flower's half of the protocol in a module make its masks by `long_masks`; both halves must."""
    half = importlib.import_module(module)
    theirs = half.pseudo_rand_gen
    vars(half)["pseudo_rand_gen"] = long_masks
    try:
        yield
    finally:
        vars(half)["pseudo_rand_gen"] = theirs


def _masked(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    with _long_masks_in(_CLIENT_HALF):
        return secaggplus_mod(message, context, call_next)


class SecureGrid(Grid):
    """A grid on which the training replies of a round arrive as one: the mean of the clients, nobody in particular.

    The clients' app has `secure_mods`. All other messages pass as they are. A round in which too many clients fail has
    no reply at all.

    Args:
        grid: Flower's own.
        most_examples: weigh clients by their number of examples, of which none may have more; all count the same
            without. The numbers are hidden too.
        clipping_range: no coordinate of an update may be larger; clients that have one are told to, and fail.
        shares: share of a round's clients that each client's keys are spread over.
        threshold: share of those that must stay until the end of the round.
        examples_key: the metric that holds a client's number of examples.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        most_examples: int | None = None,
        clipping_range: float = 8.0,
        shares: float = 1.0,
        threshold: float = 0.5,
        examples_key: str = "num-examples",
    ) -> None:
        self._grid = grid
        self._shares, self._threshold, self._clipping_range = shares, threshold, clipping_range
        self._examples_key = examples_key
        self._hiding: dict[str, Any] = {"range": clipping_range, "most": most_examples or 0, "key": examples_key}

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """One reply for all where messages ask for training, and Flower's replies otherwise."""
        requests = list(messages)
        if not requests or requests[0].metadata.message_type != MessageType.TRAIN:
            return list(self._grid.send_and_receive(requests, timeout=timeout))
        ((key, record),) = requests[0].content.array_records.items()
        sent = SentModel({name: array.numpy() for name, array in record.items()})
        try:
            mean = self._hidden_mean(requests, timeout)
        except Exception as error:  # anything can be in a reply, and a round is less than a run
            _log.warning("secure aggregation failed, so the round has no result: %s", error)
            return []
        after = None if mean is None else sent.plus((mean[:-1] / mean[-1]).to(sent.vector.dtype))
        if after is None:
            return []
        arrays = ArrayRecord({name: Array(array) for name, array in after.items()})
        metrics = MetricRecord({self._examples_key: 1})
        return [Message(RecordDict({key: arrays, "metrics": metrics}), reply_to=requests[0])]

    def _hidden_mean(self, requests: Sequence[Message], timeout: float | None) -> torch.Tensor | None:
        """The mean of what `_send_hidden` made, float64 of shape (P + 1,); None if too many clients failed."""
        workflow = SecAggPlusWorkflow(
            self._shares,
            self._threshold,
            max_weight=1.0,
            clipping_range=self._clipping_range,
            quantization_range=_levels(len(requests)),
            timeout=timeout,
        )
        result = _Result([message.metadata.dst_node_id for message in requests])
        context, state = result.context(), WorkflowState()
        if not workflow.setup_stage(self._grid, context, state):
            return None
        state.nid_to_fitins = {message.metadata.dst_node_id: self._content(message) for message in requests}
        if not workflow.share_keys_stage(self._grid, context, state):
            return None
        _forget_missing(state)
        if not workflow.collect_masked_vectors_stage(self._grid, context, state):
            return None
        with _long_masks_in(_SERVER_HALF):
            if not workflow.unmask_stage(self._grid, context, state) or result.parameters is None:
                return None
        (vector,) = parameters_to_ndarrays(result.parameters)
        return torch.from_numpy(vector)

    def _content(self, message: Message) -> RecordDict:
        """A copy of what the strategy sends: Flower adds a record to it that differs from node to node."""
        return RecordDict({**message.content, _HIDING: ConfigRecord(self._hiding)})

    # ---------------------------------------------------------------------------------------------- passed on

    def set_run(self, run: Any) -> None:
        """As Flower's."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """As Flower's."""
        return self._grid.run

    def create_message(self, *args: Any, **options: Any) -> Message:
        """As Flower's."""
        return self._grid.create_message(*args, **options)

    def get_node_ids(self) -> Iterable[int]:
        """As Flower's."""
        return list(self._grid.get_node_ids())

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As Flower's; replies to these are not hidden, so training goes by `send_and_receive`."""
        return list(self._grid.push_messages(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As Flower's."""
        return list(self._grid.pull_messages(message_ids))


class _Result:
    """What Flower's protocol takes for a strategy of the older kind: names the nodes, and keeps the sum."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self.nodes = nodes
        self.parameters: Parameters | None = None

    def context(self) -> LegacyContext:
        state = RecordDict(
            {MAIN_CONFIGS_RECORD: ConfigRecord({WorkflowKey.CURRENT_ROUND: 0}), MAIN_PARAMS_RECORD: ArrayRecord()}
        )
        manager: Any = SimpleNamespace(num_available=lambda: len(self.nodes))
        return LegacyContext(Context(0, 0, {}, state, {}), strategy=cast(Any, self), client_manager=manager)

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> list[Any]:
        empty = FitIns(Parameters([], ""), {})
        return [(SimpleNamespace(node_id=node), empty) for node in self.nodes]

    def aggregate_fit(self, server_round: int, results: Sequence[Any], failures: Sequence[Any]) -> tuple[None, Any]:
        if results:
            self.parameters = results[0][1].parameters
        return None, {}


def _forget_missing(state: WorkflowState) -> None:
    """Go on as if clients that left before keys were shared had never been asked.

    Nobody has put a mask on for them, and nobody holds a share of their keys. Flower would ask for those shares, and
    the round would fail.
    """
    state.sampled_node_ids = set(state.active_node_ids)
    state.nid_to_neighbours = {
        node: state.nid_to_neighbours[node] & state.sampled_node_ids for node in state.sampled_node_ids
    }


def _levels(clients: int) -> int:
    """Fixed-point levels of a number: as many as leave the sum over all clients below the modulus 2^32."""
    return int(2 ** min(30, 32 - clients.bit_length()))


def _send_hidden(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Let the app train, and hand its update to Flower's mod as the one array that it masks.

    The vector is the update times the client's weight, and the weight behind it.
    """
    if message.metadata.message_type != MessageType.TRAIN:
        return call_next(message, context)
    hiding: Mapping[str, Any] = message.content.config_records[_HIDING]
    received = only(message.content.array_records, "array")
    message.content = RecordDict(
        {name: record for name, record in message.content.items() if name not in (_HIDING, RECORD_KEY_CONFIGS)}
    )
    sent = SentModel({name: array.numpy() for name, array in received.items()})
    reply = call_next(message, context)
    if reply.has_error():
        raise DataError(f"the client failed: {reply.error.reason}")
    update = sent.update(only(reply.content.array_records, "array")).double()
    weight = _weight(reply, int(hiding["most"]), str(hiding["key"]))
    vector = torch.cat([weight * update, torch.tensor([weight], dtype=torch.float64)])
    largest = float(vector.abs().max())
    if largest > hiding["range"]:
        raise DataError(
            f"a coordinate of the update is {largest:g} and would be cut at {hiding['range']:g}; "
            "raise the clipping_range of SecureGrid"
        )
    hidden = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector.numpy()]), num_examples=1, metrics={})
    return Message(fitres_to_recorddict(hidden, keep_input=False), reply_to=message)


def _weight(reply: Message, most: int, key: str) -> float:
    if most == 0:
        return 1.0
    examples = only(reply.content.metric_records, "metric").get(key)
    if not isinstance(examples, (int, float)) or not 0 < examples <= most:
        raise DataError(f"{key} is {examples!r}; it must be from 1 to most_examples, {most}, to be hidden")
    return examples / most
