"""Equal results between executors to rounding, and to the bit within one whatever the workers and the order."""

import os
import signal

import pytest
import torch
from torch import Tensor, nn

from holdfast.errors import FederationError
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.executors import (
    Executor,
    ExecutorChoice,
    InProcess,
    WorkerPool,
    choose,
    default_chunk,
    make_executor,
)
from holdfast.federated.engine.network import Network
from holdfast.federated.personalization import Ditto, FineTuning, Local
from holdfast.federated.settings import Rounds
from holdfast.primitives.threads import torch_threads
from tests.federated.toy import convolutional, linear, toy_clients

KINDS = {
    "linear": linear,
    "cnn": convolutional,
    "dropout": lambda: convolutional(dropout=0.5),
    "batch norm": lambda: convolutional(norm=True),
    "running statistics": lambda: convolutional(norm=True, tracked=True),
    "adam": convolutional,
}
EVERYBODY = torch.arange(8)
METHODS = (Local(), Ditto(0.5), FineTuning(epochs=1))


def runtime(kind: str = "linear", **changes: object) -> ClientRuntime:
    shape = (6,) if kind == "linear" else (1, 8, 8)
    options: dict[str, object] = {"cohort": 8, "batch_size": 8, "local_steps": 3, "learning_rate": 0.1, **changes}
    options |= {"optimizer": "adam", "learning_rate": 1e-3} if kind == "adam" else {}
    network = Network(KINDS[kind]())
    return ClientRuntime(toy_clients(shape=shape), network, Rounds(**options), METHODS, needs_losses=True)  # type: ignore[arg-type]


def two_rounds(executor: Executor, clients: Tensor = EVERYBODY) -> dict[str, Tensor]:
    """Everything that two rounds, tuning and scoring leave."""
    here = executor.runtime
    drawn, weights = torch.zeros(8, dtype=torch.int64), here.network.initial
    sent = []
    try:
        for number in range(2):
            updates, losses = executor.round(number, clients, drawn, weights)
            sent += [updates.clone(), losses.clone()]
            weights = weights + updates.mean(0)
            drawn += here.draws(EVERYBODY)
        executor.personalize_all(here.post_hoc["finetuning"], weights)
        scores = {
            label or "shared": executor.score_all("test", weights, label) for label in (None, "local", "ditto-0.5")
        }
    finally:
        executor.close()
    found = {f"sent {place}": value for place, value in enumerate(sent)}
    found |= {f"model {label}": here.personal(label, EVERYBODY, weights) for label in ("ditto-0.5", "finetuning")}
    found |= {f"loss {label}": score.loss for label, score in scores.items()}
    found |= {f"correct {label}": score.correct for label, score in scores.items()}
    return found


def assert_close(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    for name, value in one.items():
        torch.testing.assert_close(
            value, other[name], rtol=1e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def assert_same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("kind", ["linear", "batch norm", "running statistics"])
def test_rows_are_in_the_order_of_clients_where_only_equal_batches_are_stacked(kind: str):
    here = runtime(kind, batch_size=64, local_steps=1)
    assert here.clients.train.counts.diff().min() < 0
    drawn, weights = torch.zeros(8, dtype=torch.int64), here.network.initial
    updates, losses = InProcess(here, 3).round(0, EVERYBODY, drawn, weights)
    alone = [
        InProcess(runtime(kind, batch_size=64, local_steps=1), 3).round(0, EVERYBODY[i : i + 1], drawn, weights)
        for i in range(8)
    ]
    torch.testing.assert_close(updates, torch.cat([update for update, _ in alone]), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(losses, torch.cat([loss for _, loss in alone]))


@pytest.mark.parametrize("local", [{"local_steps": 3}, {"local_epochs": 2}], ids=["steps", "epochs"])
@pytest.mark.parametrize("kind", KINDS)
def test_executors_agree_to_rounding(kind, local):
    reference = two_rounds(InProcess(runtime(kind, **local), chunk=1))
    assert_close(reference, two_rounds(InProcess(runtime(kind, **local), chunk=3)))
    assert_close(reference, two_rounds(InProcess(runtime(kind, **local), chunk=8)))
    assert_close(reference, two_rounds(WorkerPool(runtime(kind, **local), chunk=3, workers=2)))


@pytest.mark.parametrize("kind", ["linear", "dropout", "batch norm"])
@pytest.mark.parametrize("chunk", [1, 3])
def test_a_pool_gives_the_same_bits_whatever_its_workers(kind, chunk):
    single = two_rounds(InProcess(runtime(kind), chunk=chunk))
    for workers in (1, 2, 3):
        assert_same_bits(single, two_rounds(WorkerPool(runtime(kind), chunk=chunk, workers=workers)))


@pytest.mark.parametrize("chunk", [1, 3])
def test_the_order_in_which_clients_are_named_changes_no_bit(chunk):
    one = two_rounds(InProcess(runtime(), chunk=chunk))
    assert_same_bits(one, two_rounds(InProcess(runtime(), chunk=chunk), EVERYBODY.flip(0)))
    assert_same_bits(one, two_rounds(InProcess(runtime(), chunk=chunk), torch.tensor([3, 1, 7, 0, 2, 6, 4, 5])))


def test_what_is_sent_is_ascending_by_client():
    executor = InProcess(runtime(), chunk=3)
    everybody, _ = executor.round(0, EVERYBODY, torch.zeros(8, dtype=torch.int64), executor.runtime.network.initial)
    few, _ = InProcess(runtime(), chunk=1).round(
        0, torch.tensor([6, 2]), torch.zeros(8, dtype=torch.int64), executor.runtime.network.initial
    )
    torch.testing.assert_close(few, everybody[[2, 6]], rtol=1e-4, atol=1e-6)


def test_local_training_is_plain_sgd_on_the_clients_batches():
    """The serial executor against the loop that anybody would write."""
    here = runtime(batch_size=8)
    updates, losses = InProcess(here, 1).round(0, EVERYBODY, torch.zeros(8, dtype=torch.int64), here.network.initial)
    for client in range(8):
        inputs, labels = here.clients.train.of(client)
        model = linear()
        with torch.no_grad():
            before = nn.functional.cross_entropy(model(inputs), labels)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for rows in here.training.stream.rows(client, len(labels), 0, 3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
        moved = nn.utils.parameters_to_vector(model.parameters()).detach() - here.network.initial
        torch.testing.assert_close(updates[client], moved, rtol=1e-4, atol=1e-6)
        assert losses[client] == pytest.approx(float(before), rel=1e-5)


def test_epochs_walk_through_each_clients_own_number_of_batches():
    here = runtime(local_epochs=2)
    assert here.training.steps(EVERYBODY).tolist() == [2 * max(n // 8, 1) for n in here.clients.train.counts.tolist()]


def test_a_failing_client_is_named_with_its_round():
    here = runtime()
    here.clients.train.labels[:] = 99
    pool = WorkerPool(here, chunk=2, workers=1)
    try:
        with pytest.raises(FederationError, match=r"clients 0 to 1 failed in round 3: IndexError"):
            pool.round(2, EVERYBODY, torch.zeros(8, dtype=torch.int64), here.network.initial)
    finally:
        pool.close()


def test_a_worker_that_is_killed_is_reported():
    here = runtime()
    pool = WorkerPool(here, chunk=2, workers=1)
    os.kill(pool._processes[0].pid, signal.SIGKILL)
    try:
        with pytest.raises(FederationError, match="out of memory"):
            pool.round(0, EVERYBODY, torch.zeros(8, dtype=torch.int64), here.network.initial)
    finally:
        pool.close()


def test_closing_ends_the_workers():
    pool = WorkerPool(runtime(), chunk=2, workers=2)
    processes = list(pool._processes)
    pool.close()
    assert all(not process.is_alive() for process in processes)


def test_auto_chooses_one_of_the_executors_and_others_are_taken_at_their_word():
    def none(settings: Rounds) -> ClientRuntime:
        raise AssertionError("a trial is for auto only")

    assert choose("serial", runtime().training, none) == ExecutorChoice("serial", 1)
    assert choose("batched", runtime(chunk=5).training, none) == ExecutorChoice("batched", 5)
    assert choose("pool", runtime().training, none).name == "pool"
    found = choose("auto", runtime().training, lambda settings: runtime(local_steps=settings.local_steps))
    assert found.name in ("serial", "batched", "pool")
    make_executor(runtime(), found).close()


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_double_precision_stays_double_everywhere(executor):
    network = Network(linear().double())
    clients = toy_clients(dtype=torch.float64)
    here = ClientRuntime(clients, network, Rounds(cohort=8, batch_size=8, learning_rate=0.1, chunk=3), METHODS)
    wide = make_executor(here, choose(executor, here.training, lambda _: here))
    found = two_rounds(wide)
    assert all(value.dtype == torch.float64 for name, value in found.items() if name.startswith(("sent", "model")))
    reference = two_rounds(InProcess(ClientRuntime(clients, network, here.settings, METHODS), 1))
    for name, value in found.items():
        torch.testing.assert_close(value, reference[name], rtol=0, atol=1e-13)


def test_chunks_of_a_round_are_an_even_number_of_about_the_same_size():
    chunk = default_chunk(runtime().training)
    sizes = [len(part) for part in InProcess(runtime(), chunk).chunks(EVERYBODY)]
    assert sum(sizes) == 8
    assert len(sizes) % 2 == 0


@pytest.mark.parametrize("make", [lambda here: InProcess(here, 1), lambda here: WorkerPool(here, 1, workers=1)])
def test_torch_has_one_thread_while_an_executor_is_open(make):
    with torch_threads(2):
        executor = make(runtime())
        assert torch.get_num_threads() == 1
        executor.close()
        assert torch.get_num_threads() == 2
