"""Client-level privacy behind Flower's strategy interface: who is drawn, what is cut and added, what is spent."""

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp
from opacus.accountants import RDPAccountant

from holdfast.errors import ConfigError
from holdfast.federated import ClientPrivacy, FedAdam, Term
from holdfast.federated.server import privacy
from holdfast.federated.server.privacy import KEY
from holdfast.integrations.flower.private_strategy import PrivateStrategy
from holdfast.streams import torch_stream
from tests.integrations.flower.local_grid import LocalGrid, numbers, record_of, reply_to

CLIENTS, COHORT, SIZE = 12, 4, 50
SEEDED = ClientPrivacy(clip=0.5, noise_multiplier=0.8, noise_seed=3)
VALUES = np.random.default_rng(0)
START = {"w": VALUES.normal(size=SIZE).astype(np.float32)}
UPDATES = (VALUES.normal(size=(CLIENTS, SIZE)) * np.logspace(-3, 3, CLIENTS)[:, None]).astype(np.float32)


def app(number):
    client = ClientApp()

    @client.train()
    def train(message, context):
        sent = {"w": numbers(message.content["arrays"])["w"] + UPDATES[number]}
        return reply_to(message, sent, num_examples=5, partition_id=number)

    return client


GRID = [app(number) for number in range(CLIENTS)]


def strategy(privacy=SEEDED, **options):
    return PrivateStrategy(
        privacy, clients=CLIENTS, **{"cohort": COHORT, "rounds": 4, "fraction_evaluate": 0.0, **options}
    )


def test_a_model_is_the_clipped_sum_over_the_expected_number_and_its_noise():
    private, expected = strategy(), START["w"].astype(np.float64)
    result = private.start(LocalGrid(GRID), record_of(START), num_rounds=4)
    sizes = set()
    for number in range(4):
        drawn = (
            torch.rand(CLIENTS, dtype=torch.float64, generator=torch_stream(3, "selection", number)) < COHORT / CLIENTS
        )
        sent = UPDATES[drawn.numpy()].astype(np.float64)
        sizes.add(len(sent))
        cut = sum(update * min(1, 0.5 / np.linalg.norm(update)) for update in sent)
        noise = SEEDED.noise(SIZE, private.settings, CLIENTS, {KEY: torch.tensor(3)}, number).numpy()
        expected = expected + cut / COHORT + noise
    assert len(sizes) > 1
    np.testing.assert_allclose(numbers(result.arrays)["w"], expected, atol=2e-4)  # an update of 7,000 in float32
    other = RDPAccountant()
    for _ in range(4):
        other.step(noise_multiplier=0.8, sample_rate=COHORT / CLIENTS)
    assert private.spent().epsilon == pytest.approx(other.get_epsilon(CLIENTS**-1.1), rel=1e-9)


def test_a_round_that_nobody_is_drawn_in_or_answers_gets_its_noise_and_counts():
    private, grid = strategy(cohort=1), LocalGrid(GRID)
    grid.lost = lambda message: True
    private.configure_train(1, record_of(START), ConfigRecord(), grid)
    arrays, _ = private.aggregate_train(1, [])
    noise = SEEDED.noise(SIZE, private.settings, CLIENTS, {KEY: torch.tensor(3)}, 0).numpy()
    np.testing.assert_allclose(numbers(arrays)["w"], START["w"] + noise, atol=1e-6)
    assert private.done == 1
    assert private.spent().rounds == 1


def test_one_client_moves_a_round_by_the_clip_at_most_whoever_they_are():
    def after(left_out):
        private, grid = strategy(cohort=CLIENTS), LocalGrid(GRID)
        messages = list(private.configure_train(1, record_of(START), ConfigRecord(), grid))
        replies = [reply for reply in grid.send_and_receive(messages) if reply.metadata.src_node_id != 1000 + left_out]
        return numbers(private.aggregate_train(1, replies)[0])["w"]

    whole = after(-1)
    assert all(np.linalg.norm(whole - after(client)) <= 0.5 / CLIENTS + 1e-5 for client in range(CLIENTS))


def test_keys_are_secret_unless_named_and_more_rounds_than_planned_are_told(caplog, monkeypatch):
    keys = {int(strategy(ClientPrivacy(0.5)).key) for _ in range(3)}
    assert len(keys) == 3
    monkeypatch.setattr(privacy, "_noise_for", lambda *_: 1.0)  # the search for it takes seconds
    private = strategy(ClientPrivacy(0.5, epsilon=3.0), rounds=2, server_optimizer=FedAdam(0.1))
    private.start(LocalGrid(GRID), record_of(START), num_rounds=3)
    assert private.spent().rounds == 3
    assert "2 rounds were planned for an epsilon of 3" in caplog.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"weighted": True}, "weighted isn't an option of a private strategy"),
        ({"fraction_train": 0.5}, "fraction_train isn.t an option"),
        ({"objective": Term()}, "for term clients send their losses too"),
        ({"cohort": 13}, "cohort is 13 and there are 12 clients"),
    ],
)
def test_what_the_accountant_does_not_know_of_is_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        strategy(**options)


def test_running_statistics_are_refused():
    arrays = record_of({**START, "norm.running_var": np.ones(3, dtype=np.float32)})
    with pytest.raises(ConfigError, match="running statistics"):
        strategy().configure_train(1, arrays, ConfigRecord(), LocalGrid(GRID))
