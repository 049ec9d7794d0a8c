"""Client-level differential privacy: what is clipped, drawn, added and said."""

import math

import pytest
import torch
from opacus.accountants import PRVAccountant, RDPAccountant

from holdfast.errors import ConfigError
from holdfast.federated import (
    Ditto,
    FedAvg,
    FedProx,
    Gaussian,
    Median,
    Rounds,
    Term,
    Threat,
    federate,
)
from holdfast.federated.aggregation import Clipping
from holdfast.federated.engine.selection import select
from holdfast.federated.scaffold import Scaffold
from holdfast.federated.server.optimizers import FedAdam
from holdfast.federated.server.privacy import KEY, ClientPrivacy
from tests.federated.toy import convolutional, linear, toy_clients

SETTINGS = Rounds(
    rounds=5, cohort=3, batch_size=8, learning_rate=0.1, evaluate_every=0, executor="serial", sampling="poisson"
)
SEEDED = ClientPrivacy(clip=0.2, noise_multiplier=0.8, noise_seed=7)


def run(privacy=SEEDED, settings=SETTINGS, model=None, **options):
    return federate(toy_clients(), model or linear(), settings, privacy=privacy, **options)


def test_poisson_sampling_draws_each_client_by_itself():
    sizes, nobody = torch.tensor([5, 500, 50, 1]), torch.zeros(4, dtype=torch.bool)
    settings = Rounds(cohort=1, sampling="poisson")
    drawn = torch.zeros(3000, 4)
    for number in range(3000):
        drawn[number, select(settings, number, sizes, nobody)] = 1
    assert (drawn.mean(0) - 0.25).abs().max() < 4 * math.sqrt(0.25 * 0.75 / 3000)
    together = (drawn[:, :1] * drawn[:, 1:]).mean(0)
    assert (together - 0.0625).abs().max() < 4 * math.sqrt(0.0625 / 3000)
    assert set(drawn.sum(1).tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}


def test_a_round_is_the_clipped_sum_over_the_expected_number_and_its_noise():
    """By hand: updates of the same cohort without privacy, cut, added and divided, and the noise of the key."""
    once = Rounds(**{**vars(SETTINGS), "rounds": 1})
    found = run(settings=once)
    chosen = select(once, 0, toy_clients().train.counts, torch.zeros(8, dtype=torch.bool), 7)
    assert torch.equal(chosen, found.joined.nonzero().flatten())
    from holdfast.federated.engine.executors import InProcess

    executor = InProcess(found.runtime, 1)
    updates, _ = executor.round(0, chosen, torch.zeros(8, dtype=torch.int64), found.network.initial)
    executor.close()
    assert (updates.norm(dim=1) > 0.2).any()
    cut = updates.double() * (0.2 / updates.double().norm(dim=1, keepdim=True)).clamp(max=1)
    noise = SEEDED.noise(updates.shape[1], once, 8, {KEY: torch.tensor(7)}, 0)
    expected = found.network.initial.double() + cut.sum(0) / 3 + noise
    torch.testing.assert_close(found.weights.double(), expected, atol=1e-6, rtol=0)


def test_noise_has_the_deviation_that_is_accounted_for_and_is_new_in_every_round():
    state = {KEY: torch.tensor(3)}
    noises = [ClientPrivacy(clip=0.5, noise_multiplier=2.0).noise(40_000, SETTINGS, 8, state, n) for n in (0, 1)]
    for noise in noises:
        assert float(noise.std()) == pytest.approx(2.0 * 0.5 / 3, rel=0.02)
    assert abs(float(torch.corrcoef(torch.stack(noises))[0, 1])) < 0.02


def test_rounds_without_anybody_get_their_noise_and_count():
    rare = Rounds(**{**vars(SETTINGS), "cohort": 1, "rounds": 6})
    found = run(settings=rare)
    empty = [n for n in range(6) if not len(select(rare, n, torch.ones(8), torch.zeros(8, dtype=torch.bool), 7))]
    assert empty
    assert found.privacy.rounds == 6
    alone = run(settings=Rounds(**{**vars(rare), "rounds": 1}), privacy=ClientPrivacy(noise_seed=_empty_first()))
    assert not alone.joined.any()
    assert (alone.weights != alone.network.initial).all()


def _empty_first():
    settings = Rounds(cohort=1, sampling="poisson")
    draws = ((k, select(settings, 0, torch.ones(8), torch.zeros(8, dtype=torch.bool), k)) for k in range(100))
    return next(key for key, chosen in draws if not len(chosen))


@pytest.mark.parametrize(("accountant", "peer"), [("rdp", RDPAccountant), ("prv", PRVAccountant)])
def test_epsilon_is_that_of_opacus(accountant, peer):
    spent = run(ClientPrivacy(0.2, 1.3, delta=1e-3, accountant=accountant, noise_seed=1)).privacy
    other = peer()
    for _ in range(5):
        other.step(noise_multiplier=1.3, sample_rate=3 / 8)
    assert spent.epsilon == pytest.approx(other.get_epsilon(1e-3), rel=1e-9)
    assert (spent.rounds, spent.sampling_rate, spent.delta) == (5, 3 / 8, 1e-3)


def test_a_wanted_epsilon_is_met_and_hardly_missed():
    spent = run(ClientPrivacy(0.2, epsilon=2.0, noise_seed=1)).privacy
    assert 1.98 < spent.epsilon <= 2.0
    assert spent.delta == pytest.approx(8**-1.1)


def test_neighbours_differ_by_the_clip_at_most():
    generator = torch.Generator().manual_seed(0)
    updates = torch.randn(9, 30, generator=generator) * torch.logspace(-3, 6, 9)[:, None]
    whole = SEEDED.mean(updates, 3)
    for client in range(9):
        without = SEEDED.mean(torch.cat([updates[:client], updates[client + 1 :]]), 3)
        assert float((whole - without).norm()) <= 0.2 / 3 * (1 + 1e-5)


def test_the_key_is_new_in_every_run_unless_it_is_named_and_the_sentence_says_which():
    secret = [run(ClientPrivacy(0.2)) for _ in range(2)]
    assert not torch.equal(secret[0].weights, secret[1].weights)
    assert "protects nobody" not in secret[0].privacy.sentence()
    named = [run() for _ in range(2)]
    assert torch.equal(named[0].weights, named[1].weights)
    assert "rehearsal that protects nobody" in named[0].privacy.sentence()


def test_executors_agree_though_rounds_have_more_clients_than_the_cohort():
    ways = {"serial": {}, "batched": {"chunk": 3}, "pool": {"chunk": 1, "workers": 2}}
    settings = {**vars(SETTINGS), "cohort": 5, "rounds": 6}
    found = [run(settings=Rounds(**{**settings, "executor": name, **more})) for name, more in ways.items()]
    counts = [len(select(Rounds(**settings), n, torch.ones(8), torch.zeros(8, dtype=torch.bool), 7)) for n in range(6)]
    assert max(counts) > 5
    for other in found[1:]:
        torch.testing.assert_close(found[0].weights, other.weights, rtol=1e-4, atol=2e-5)


def test_personal_models_take_no_noise_of_their_own():
    """A pull of zero is local training, whatever the shared model is: the same with any noise."""
    rows = [
        run(ClientPrivacy(0.2, noise, noise_seed=7), personalize=[Ditto(0.0, start="initial")]) for noise in (0.5, 50.0)
    ]
    everybody = torch.arange(8)
    one, two = (found.runtime.personal("ditto-0", everybody, found.network.initial) for found in rows)
    assert torch.equal(one, two)
    assert not torch.allclose(rows[0].weights, rows[1].weights)


def test_an_attacker_moves_a_round_by_the_clip_at_most():
    settings = Rounds(**{**vars(SETTINGS), "rounds": 1, "cohort": 8})
    attacked = run(settings=settings, threat=Threat(Gaussian(1e6), 0.25))
    clean = run(settings=settings)
    assert float((attacked.weights - clean.weights).norm()) <= 2 * 2 * 0.2 / 8 + 1e-6


def test_a_server_optimizer_comes_after_the_noise():
    found = run(server_optimizer=FedAdam())
    assert found.privacy.epsilon == run().privacy.epsilon
    assert not torch.allclose(found.weights, run().weights)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"settings": Rounds(cohort=3)}, "give --sampling poisson"),
        (
            {"aggregator": Median(), "expect_malicious": 0},
            "one client can move median|promises something of a fixed one",
        ),
        ({"aggregator": Clipping()}, "it is not known how far one client can move clipping"),
        ({"objective": Term()}, "for term clients send their losses too"),
        ({"objective": Scaffold()}, "for scaffold clients send a second vector too"),
        ({"privacy": ClientPrivacy(delta=0.2)}, "giving away one of them altogether"),
    ],
)
def test_what_the_accountant_does_not_know_of_is_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        run(**options)


def test_running_statistics_are_refused():
    with pytest.raises(ConfigError, match="running statistics"):
        federate(
            toy_clients(shape=(1, 8, 8)), convolutional(norm=True, tracked=True), SETTINGS, privacy=ClientPrivacy()
        )


def test_poisson_sampling_goes_with_no_rule_that_counts_attackers():
    with pytest.raises(ConfigError, match="another number of clients in every round"):
        federate(toy_clients(), linear(), SETTINGS, aggregator=Median(), expect_malicious=0)
    for objective in (FedAvg(), FedProx()):
        assert federate(toy_clients(), linear(), SETTINGS, objective=objective).privacy is None


@pytest.mark.parametrize("option", ["clip", "noise_multiplier", "epsilon"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_options_that_hide_nobody_are_refused(option, value):
    with pytest.raises(ConfigError, match=f"privacy's {option} is"):
        ClientPrivacy(**{option: value})


def test_without_opacus_a_private_federation_is_refused_before_its_first_round(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "opacus", None)
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    from holdfast.errors import MissingDependencyError

    with pytest.raises(MissingDependencyError, match=r"holdfast\[privacy\]"):
        run()
