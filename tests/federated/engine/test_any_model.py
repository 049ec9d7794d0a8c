"""Every kind of model, in every executor: the same results, and evaluation as a plain torch loop has it."""

import copy
import os

import pytest
import torch
import torch.nn.functional as F

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.federated import Ditto, Rounds, federate
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.executors import InProcess
from holdfast.federated.engine.network import Network
from holdfast.federated.result import FederationResult
from holdfast.streams import torch_stream
from tests.federated.engine.kinds import CLASSES, KINDS, WORDS, made

#: One client has a single example, one fewer than a batch.
SIZES = (9, 1, 5, 3, 8)
SETTINGS = {"rounds": 2, "cohort": 5, "batch_size": 4, "local_steps": 2, "learning_rate": 0.1, "workers": 2, "chunk": 3}


def clients_for(kind: str, sizes: tuple[int, ...] = SIZES) -> Clients:
    generator = torch_stream(3, "kinds")
    parts = []
    for counts in (sizes, tuple(size % 3 for size in sizes), tuple(size % 4 + 1 for size in sizes)):
        shape = (sum(counts), *KINDS[kind].shape)
        inputs = (
            torch.randint(0, WORDS, shape, generator=generator)
            if KINDS[kind].words
            else torch.randn(shape, generator=generator, dtype=torch.float64)
        )
        labels = torch.randint(0, CLASSES, (sum(counts),), generator=generator)
        parts.append(ClientPart.of_counts(inputs, labels, torch.tensor(counts)))
    return Clients(*parts, CLASSES)


def run(kind: str, executor: str) -> FederationResult:
    settings = Rounds(**SETTINGS, executor=executor)
    return federate(clients_for(kind), made(kind), settings, personalize=[Ditto(0.5)])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_runs_in_every_executor_with_the_same_results(kind):
    serial = run(kind, "serial")
    everybody = torch.arange(len(SIZES))
    own = serial.runtime.personal("ditto-0.5", everybody, serial.weights)
    assert not torch.equal(serial.weights, serial.network.initial)
    for executor in ("batched", "pool", "auto"):
        other = run(kind, executor)
        torch.testing.assert_close(other.weights, serial.weights, rtol=0, atol=1e-9)
        personal = other.runtime.personal("ditto-0.5", everybody, other.weights)
        torch.testing.assert_close(personal, own, rtol=0, atol=1e-9)
        for label, report in serial.reports.items():
            torch.testing.assert_close(other.reports[label].scores.loss, report.scores.loss, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dropout that is never off"])
def test_evaluation_is_that_of_a_plain_loop_with_the_same_weights_each_time(kind):
    outcome, clients, original = run(kind, "serial"), clients_for(kind), made(kind)
    model = outcome.model()
    assert [type(each).__qualname__ for each in model.modules()] == [
        type(each).__qualname__ for each in original.modules()
    ]
    assert list(model.state_dict()) == list(original.state_dict())
    assert not model.training
    for again in range(2):
        scores = outcome.runtime.score(torch.arange(len(SIZES)), "test", outcome.weights)
        for client in range(len(SIZES)):
            inputs, labels = clients.test.of(client)
            if kind == "norm without statistics" and len(labels) == 1:
                continue  # torch refuses to evaluate one example without statistics
            with torch.no_grad():
                outputs = model(inputs)
            outputs = getattr(outputs, "logits", outputs)
            assert float(scores.loss[client]) == pytest.approx(float(F.cross_entropy(outputs, labels)), abs=1e-9), again
            assert int(scores.correct[client]) == int((outputs.argmax(-1) == labels).sum())


@pytest.mark.parametrize("kind", [kind for kind, about in KINDS.items() if not about.draws])
def test_local_training_is_sgd_in_the_modules_training_mode(kind):
    clients = clients_for(kind)
    runtime = ClientRuntime(clients, Network(made(kind)), Rounds(**SETTINGS))
    drawn = torch.zeros(len(SIZES), dtype=torch.int64)
    updates, _ = InProcess(runtime, 1).round(0, torch.arange(len(SIZES)), drawn, runtime.network.initial)
    for client in (0, 2):
        model = made(kind).train()
        parameters = [each for each in model.parameters() if each.requires_grad]
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        buffers = copy.deepcopy(dict(model.named_buffers()))
        inputs, labels = clients.train.of(client)
        for rows in runtime.training.stream.rows(client, len(labels), 0, 2):
            optimizer.zero_grad()
            outputs = model(inputs[rows])
            F.cross_entropy(getattr(outputs, "logits", outputs), labels[rows]).backward()
            optimizer.step()
            if kind in (
                "spectral norm",
                "buffer that counts",
            ):  # each pass starts from the model's own vectors, whoever ran before
                for name, value in model.named_buffers():
                    value.copy_(buffers[name])
        after = runtime.network.initial + updates[client]
        state = model.state_dict()
        for name, where in runtime.network.slices.items():
            torch.testing.assert_close(after[where], state[name].detach().flatten(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", [kind for kind, about in KINDS.items() if about.draws])
def test_training_draws_and_what_it_draws_depends_on_the_seed_the_client_and_the_batch(kind):
    clients = clients_for(kind, sizes=(4, 4))
    # Both clients have the same data, so only what they draw can tell them apart.
    clients.train.inputs[4:], clients.train.labels[4:] = clients.train.inputs[:4], clients.train.labels[:4]

    def updates(seed: int, drawn: int) -> torch.Tensor:
        settings = Rounds(**{**SETTINGS, "local_steps": 1, "shuffle": False, "seed": seed, "cohort": 2})
        runtime = ClientRuntime(clients, Network(made(kind)), settings)
        start = torch.full((2,), drawn)
        return InProcess(runtime, 1).round(0, torch.arange(2), start, runtime.network.initial)[0].clone()

    torch.manual_seed(1)
    first = updates(0, 0)
    torch.manual_seed(2)
    assert torch.equal(first, updates(0, 0))
    assert not torch.allclose(first[0], first[1])
    assert not torch.allclose(first, updates(1, 0))
    assert not torch.allclose(first, updates(0, 1))


@pytest.mark.parametrize("kind", [kind for kind, about in KINDS.items() if about.way])
def test_kinds_run_in_the_way_they_should(kind):
    way = Network(made(kind)).study(clients_for(kind).train.inputs)
    assert way.name == KINDS[kind].way, way.why
    assert bool(way.why) == (way.name == "rows")
    assert "\n" not in way.why


def test_torchs_generator_goes_on_as_if_nothing_had_been_drawn():
    torch.manual_seed(5)
    expected = torch.rand(3)
    for kind in ("lstm with dropout", "gumbel softmax", "transformer layer", "dropout that is never off"):
        torch.manual_seed(5)
        run(kind, "serial")
        assert torch.equal(torch.rand(3), expected), kind


def test_models_of_users_are_left_alone_and_copies_have_their_own_memory():
    original = made("lora of peft")
    before = copy.deepcopy(original.state_dict())
    outcome = federate(clients_for("lora of peft"), original, Rounds(**SETTINGS, executor="batched"))
    assert all(torch.equal(before[name], value) for name, value in original.state_dict().items())
    one, other = outcome.model(), outcome.model()
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.zero_()
    assert all(torch.equal(value, outcome.model().state_dict()[name]) for name, value in other.state_dict().items())
    largest = max(parameter.untyped_storage().nbytes() - 8 * parameter.numel() for parameter in other.parameters())
    assert largest == 0, "a parameter is a view of a larger row"


def test_only_adapters_and_the_head_are_in_a_row_of_lora():
    network = Network(made("lora of peft"))
    assert all("lora_" in name or "classifier" in name for name in network.slices)
    assert (
        network.size
        == network.trainable
        == sum(parameter.numel() for parameter in made("lora of peft").parameters() if parameter.requires_grad)
    )


def _exits(x: torch.Tensor) -> torch.Tensor:
    if torch.is_grad_enabled() and os.getpid() != _exits.parent:  # type: ignore[attr-defined]
        raise ZeroDivisionError("a mistake of the user's own")
    return x


def test_an_exception_of_the_users_code_in_a_worker_is_shown_as_it_was():
    from holdfast.errors import FederationError
    from tests.federated.engine.kinds import Noise

    _exits.parent = os.getpid()  # type: ignore[attr-defined]
    settings = Rounds(**SETTINGS, executor="pool")
    with pytest.raises(FederationError, match="ZeroDivisionError: a mistake of the user's own") as raised:
        federate(clients_for("bernoulli"), Noise(_exits).double(), settings)
    assert "in _exits" in str(raised.value.__cause__)


def test_auto_never_dies_of_a_trial(caplog):
    from tests.federated.engine.kinds import Noise

    _exits.parent = os.getpid()  # type: ignore[attr-defined]
    outcome = federate(clients_for("bernoulli"), Noise(_exits).double(), Rounds(**SETTINGS, executor="auto"))
    assert outcome.choice.name in ("serial", "batched")
    assert "a mistake of the user's own" in caplog.text


def test_why_clients_are_not_stacked_is_said_in_one_line(caplog):
    run("branches", "batched")
    lines = [record.message for record in caplog.records if "one after another" in record.message]
    assert len(lines) == 1 and lines[0].startswith("Decides can't be stacked (")
    caplog.clear()
    run("branches", "serial")
    assert "one after another" not in caplog.text
