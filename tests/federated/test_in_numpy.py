"""Every method beside Ditto as a loop of NumPy that shares nothing with it but who is drawn, and which examples.

Gradients are written out: softmax regression, behind batch normalisation where a method needs layers. SCAFFOLD has a
loop of its own in `tests.federated.test_scaffold`.
"""

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.federated import (
    ClientPrivacy,
    Ditto,
    Ewc,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedBn,
    FedPer,
    FedRep,
    FedYogi,
    FineTuning,
    Rounds,
    Skl,
    federate,
)
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.selection import select
from holdfast.federated.server.privacy import KEY
from tests.federated.toy import linear, toy_clients

RATE, STEPS, BATCH, EPOCHS = 0.3, 3, 8, 2
SETTINGS = Rounds(
    rounds=5, cohort=3, batch_size=BATCH, local_steps=STEPS, learning_rate=RATE, evaluate_every=0,
    executor="batched", chunk=2,
)  # fmt: skip
CLIENTS = toy_clients(dtype=torch.float64)
EVERYBODY, NOBODY = torch.arange(len(CLIENTS)), torch.zeros(len(CLIENTS), dtype=torch.bool)


def cohorts(settings=SETTINGS, key=None):
    for number in range(settings.rounds):
        yield select(settings, number, CLIENTS.train.counts, NOBODY, key).tolist()


def batches(client, first, count):
    inputs, labels = (part.numpy() for part in CLIENTS.train.of(client))
    stream = BatchStream(SETTINGS.seed, BATCH)
    return [(inputs[rows], labels[rows]) for rows in stream.rows(client, len(labels), first, count).numpy()]


# -------------------------------------------------------------------------------------------------- softmax regression


def start():
    net = linear().double()
    return np.concatenate([net.weight.detach().numpy().ravel(), net.bias.detach().numpy()])


def log_softmax(x, inputs):
    logits = inputs @ x[:18].reshape(3, 6).T + x[18:]
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def at_logits(slopes, inputs):
    """Gradients by example of what has these slopes in the logits, (examples, 21)."""
    return np.concatenate([(slopes[:, :, None] * inputs[:, None, :]).reshape(len(inputs), 18), slopes], axis=1)


def of_examples(x, inputs, labels):
    return at_logits(np.exp(log_softmax(x, inputs)) - np.eye(3)[labels], inputs)


def gradient(x, inputs, labels):
    return of_examples(x, inputs, labels).mean(0)


def fisher(x, four, of):
    if of == "batches":
        return np.mean([gradient(x, *batch) ** 2 for batch in four], axis=0)
    return np.mean([(of_examples(x, *batch) ** 2).mean(0) for batch in four], axis=0)


def apart(v, w, inputs):
    """Gradient at v of half the symmetrised KL divergence of predictions."""
    ours, theirs = log_softmax(v, inputs), log_softmax(w, inputs)
    p, q, r = np.exp(ours), np.exp(theirs), ours - theirs
    slopes = p * (r - (p * r).sum(1, keepdims=True)) + p - q
    return at_logits(slopes / 2, inputs).mean(0)


def descend(x, examples, away=lambda v, inputs: 0.0, moves=1.0):
    for inputs, labels in examples:
        x = x - RATE * moves * (gradient(x, inputs, labels) + away(x, inputs))
    return x


def averaged(settings=SETTINGS, move=lambda updates: np.mean(updates, axis=0), key=None):
    """Every model that was sent out, and the last one; with who was drawn and where their draws began."""
    models, told, drawn = [start()], [], dict.fromkeys(range(len(CLIENTS)), 0)
    for cohort in cohorts(settings, key):
        told.append({client: drawn[client] for client in cohort})
        updates = [descend(models[-1], batches(client, drawn[client], STEPS)) - models[-1] for client in cohort]
        drawn |= {client: drawn[client] + STEPS for client in cohort}
        models.append(models[-1] + move(updates))
    return models, told


def same(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-9)


def run(*methods, net=None, settings=SETTINGS, **options):
    return federate(CLIENTS, net or linear().double(), settings, personalize=list(methods), **options)


class Momentum:
    def __init__(self):
        self.v = 0.0

    def __call__(self, updates):
        self.v = 0.8 * self.v + np.mean(updates, axis=0)
        return 0.7 * self.v


class Adaptive:
    """Algorithm 2 of adaptive federated optimization, with Flower's zeros and exponents."""

    def __init__(self, second, rate, corrects=False, first=0.0):
        self.m, self.v, self.rounds = 0.0, 0.0, 0
        self.second, self.rate, self.corrects, self.first = second, rate, corrects, first

    def __call__(self, updates):
        delta = np.mean(updates, axis=0)
        self.rounds += 1
        self.m = self.first * self.m + (1 - self.first) * delta
        self.v = self.second(self.v, delta**2)
        rate = self.rate
        if self.corrects:
            rate *= np.sqrt(1 - 0.95 ** (self.rounds + 1)) / (1 - 0.8 ** (self.rounds + 1))
        return rate * self.m / (np.sqrt(self.v) + 1e-2)


OPTIMIZERS = {
    "fedavgm": (FedAvgM(0.7, 0.8), Momentum()),
    "fedadagrad": (FedAdagrad(0.05, tau=1e-2), Adaptive(lambda v, square: v + square, 0.05)),
    "fedadam": (
        FedAdam(0.05, 0.8, 0.95, tau=1e-2),
        Adaptive(lambda v, square: 0.95 * v + 0.05 * square, 0.05, True, 0.8),
    ),
    "fedyogi": (
        FedYogi(0.05, 0.8, 0.95, tau=1e-2),
        Adaptive(lambda v, square: v - 0.05 * square * np.sign(v - square), 0.05, False, 0.8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_server_optimizers(name):
    optimizer, move = OPTIMIZERS[name]
    models, _ = averaged(move=move)
    same(run(server_optimizer=optimizer).weights, models[-1])
    assert np.abs(models[-1] - averaged()[0][-1]).max() > 1e-2


def test_client_level_privacy():
    privacy = ClientPrivacy(clip=0.4, noise_multiplier=0.3, noise_seed=11)
    settings = Rounds(**{**vars(SETTINGS), "sampling": "poisson"})
    numbers = iter(range(settings.rounds))

    def move(updates):
        noise = privacy.noise(21, settings, len(CLIENTS), {KEY: torch.tensor(11)}, next(numbers)).numpy()
        return sum(each * min(1, 0.4 / np.linalg.norm(each)) for each in updates) / 3 + noise

    models, told = averaged(settings, move, key=11)
    assert len({len(cohort) for cohort in told}) > 1
    same(run(settings=settings, privacy=privacy).weights, models[-1])


def pull(kind, w, four):
    if kind == "l2":
        return lambda v, inputs: 0.7 * (v - w)
    if kind == "skl":
        return lambda v, inputs: 0.7 * apart(v, w, inputs)
    weights = fisher(w, four, kind)
    return lambda v, inputs: 0.7 * weights * (v - w)


@pytest.mark.parametrize(
    ("method", "kind", "own"),
    [
        (Ditto(0.7), "l2", slice(0, 21)),
        (Ditto(0.7, distance="skl"), "skl", slice(0, 21)),
        (Ditto(0.7, distance="ewc"), "batches", slice(0, 21)),
        (Ditto(0.7, layers=("bias",)), "l2", slice(18, 21)),
        (Ditto(0.7, layers=("bias",), distance="skl"), "skl", slice(18, 21)),
    ],
    ids=lambda each: getattr(each, "label", ""),
)
def test_ditto_by_distance_and_by_layer(method, kind, own):
    models, told = averaged()
    moves, personal = np.zeros(21), {}
    moves[own] = 1
    for w, cohort in zip(models, told, strict=False):
        for client, first in cohort.items():
            v = np.where(moves, personal.get(client, w), w)
            away = pull(kind, w, batches(client, first, 4))
            personal[client] = descend(v, batches(client, first, STEPS), away, moves)
    outcome = run(method)
    rows = outcome.runtime.personal(method.label, EVERYBODY, outcome.weights)
    for client, v in personal.items():
        same(rows[client], np.where(moves, v, models[-1]))


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (FineTuning(lambda_=0.7, epochs=EPOCHS), "l2"),
        (Skl(lambda_=0.7, epochs=EPOCHS), "skl"),
        (Ewc(lambda_=0.7, epochs=EPOCHS), "batches"),
        (Ewc(lambda_=0.7, epochs=EPOCHS, fisher="examples"), "examples"),
        (FineTuning(lambda_=0.7, epochs=EPOCHS, after=2), "l2"),
    ],
    ids=["finetuning", "skl", "ewc by batches", "ewc by examples", "finetuning after two rounds"],
)
def test_training_on_from_the_shared_model(method, kind):
    models, _ = averaged()
    w = models[method.after or SETTINGS.rounds]
    outcome = run(method)
    rows = outcome.runtime.personal(method.label, EVERYBODY, outcome.weights)
    for client, count in enumerate(CLIENTS.train.counts.tolist()):
        away = pull(kind, w, batches(client, 0, 4))
        same(rows[client], descend(w, batches(client, 0, max(EPOCHS * count // BATCH, EPOCHS)), away))


# -------------------------------------------------------------------------------------------------- personal layers


def normed():
    return nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)).double()


def normed_step(state, inputs, labels, moves):
    """A step of batch normalisation with a linear head, in training mode."""
    mean, variance, n = inputs.mean(0), inputs.var(0), len(inputs)
    scaled = (inputs - mean) / np.sqrt(variance + 1e-5)
    hidden = scaled * state["0.weight"] + state["0.bias"]
    logits = hidden @ state["1.weight"].T + state["1.bias"]
    slopes = np.exp(logits) / np.exp(logits).sum(1, keepdims=True) - np.eye(3)[labels]
    below = slopes @ state["1.weight"]
    gradients = {
        "0.weight": (below * scaled).mean(0),
        "0.bias": below.mean(0),
        "1.weight": slopes.T @ hidden / n,
        "1.bias": slopes.mean(0),
    }
    after = {name: state[name] - RATE * gradients[name] * moves(name) for name in gradients}
    after["0.running_mean"] = 0.9 * state["0.running_mean"] + 0.1 * mean
    after["0.running_var"] = 0.9 * state["0.running_var"] + 0.1 * variance * n / (n - 1)
    return after


@pytest.mark.parametrize(
    ("method", "layer", "head_steps"), [(FedPer(), "1.", 0), (FedRep(head_steps=2), "1.", 2), (FedBn(), "0.", 0)]
)
def test_personal_layers(method, layer, head_steps):
    def is_own(name):
        return name.startswith(layer)

    shared = {name: value.numpy() for name, value in normed().state_dict().items() if value.is_floating_point()}
    net = normed()
    net.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in shared.items()}, strict=False)
    begun, own, drawn = dict(shared), {}, dict.fromkeys(range(len(CLIENTS)), 0)
    for cohort in cohorts():
        updates = []
        for client in cohort:
            kept = own.get(client, {name: value for name, value in begun.items() if is_own(name)})
            state, places = {**shared, **kept}, range(head_steps + STEPS)
            for place, (inputs, labels) in zip(places, batches(client, drawn[client], len(places)), strict=True):
                turn = (
                    (lambda name: True) if not head_steps else is_own if place < head_steps else lambda n: not is_own(n)
                )
                state = normed_step(state, inputs, labels, turn)
            drawn[client] += len(places)
            own[client] = {name: value for name, value in state.items() if is_own(name)}
            updates.append({name: value - shared[name] for name, value in state.items() if not is_own(name)})
        means = {name: np.mean([update[name] for update in updates], axis=0) for name in updates[0]}
        shared = {name: value + means.get(name, 0.0) for name, value in shared.items()}
    outcome = run(method, net=net)
    rows = outcome.runtime.personal(method.label, EVERYBODY, outcome.weights)
    for client, kept in own.items():
        found = outcome.network.load(rows[client]).state_dict()
        for name, value in {**shared, **kept}.items():
            same(found[name], value)
