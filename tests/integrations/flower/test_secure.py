"""Secure aggregation: the mean comes out and single updates don't; rules that need single updates are refused."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import bytes_to_ndarray
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg

from holdfast.errors import ConfigError
from holdfast.federated import AGGREGATORS, OBJECTIVES, Clipping, FedAvg, Krum, Mean, Term
from holdfast.integrations.flower.secure import SecureGrid, check_secure, secure_mods
from holdfast.integrations.flower.strategies import RobustStrategy
from tests.integrations.flower.local_grid import LocalGrid, numbers, record_of, reply_to

CLIENTS = 7
EXAMPLES = [10, 250, 3, 40, 41, 77, 500]


def model():
    values = np.random.default_rng(0)
    return {
        "weight": values.normal(size=(30, 4)).astype(np.float32),
        "bias": values.normal(size=4).astype(np.float32),
        "scale": np.float32(1.5).reshape(()),
        "batches": np.array(3),
    }


def update(number):
    values = np.random.default_rng(100 + number)
    return {name: (0.1 * values.normal(size=array.shape)).astype(np.float32) for name, array in model().items()}


def app(number, mods=(), change=update, fail=()):
    client = ClientApp(mods=list(mods))

    @client.train()
    def train(message, context):
        assert list(message.content) == ["arrays", "config"]
        if message.content["config"]["server-round"] in fail:
            raise RuntimeError("out of memory")
        received, added = numbers(message.content["arrays"]), change(number)
        arrays = {name: array + added[name] if array.dtype.kind == "f" else array for name, array in received.items()}
        return reply_to(message, arrays, num_examples=EXAMPLES[number], partition_id=number, secret=0.25 * number)

    @client.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "accuracy": 0.5})}), reply_to=message)

    return client


def hidden(**options):
    return LocalGrid([app(number, secure_mods(), **options) for number in range(CLIENTS)])


def expected(clients=range(CLIENTS), weights=None):
    """The model plus the mean update, in float64."""
    added = [update(number) for number in clients]
    return {
        name: array + np.average([one[name] for one in added], axis=0, weights=weights)
        for name, array in model().items()
        if array.dtype.kind == "f"
    }


def one_round(strategy, grid, number=1):
    messages = strategy.configure_train(number, record_of(model()), ConfigRecord(), grid)
    return strategy.aggregate_train(number, grid.send_and_receive(messages, timeout=5))


def close(arrays, wanted, rounds=1):
    """Within the rounding of float32 in every round."""
    found = numbers(arrays)
    for name, array in wanted.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=0, atol=5e-7 * rounds, err_msg=name)


@pytest.mark.parametrize("strategy", [RobustStrategy, FlowerFedAvg])
def test_the_mean_comes_out(strategy):
    arrays, _ = one_round(strategy(), SecureGrid(hidden()))
    close(arrays, expected())


@pytest.mark.parametrize("strategy", [RobustStrategy, FlowerFedAvg])
def test_the_mean_weighted_by_examples_comes_out(strategy):
    arrays, _ = one_round(strategy(), SecureGrid(hidden(), most_examples=1000))
    close(arrays, expected(weights=EXAMPLES))


def test_a_training_goes_on_for_rounds_and_evaluates_in_the_open():
    result = RobustStrategy().start(SecureGrid(hidden()), record_of(model()), num_rounds=3)
    start, step = model(), expected()
    close(result.arrays, {name: start[name] + 3 * (array - start[name]) for name, array in step.items()}, rounds=3)
    assert result.evaluate_metrics_clientapp[3]["accuracy"] == pytest.approx(0.5)


def test_what_the_server_sees_of_a_client_says_nothing_of_its_update_its_examples_or_its_metrics():
    """The same clients twice: masked vectors look uniform, and differ wholly from one round to the next."""
    seen = []
    for _ in range(2):
        grid = hidden()
        one_round(RobustStrategy(), SecureGrid(grid, most_examples=1000))
        replies = [reply for reply in grid.seen if Key.MASKED_PARAMETERS in reply.content[RECORD_KEY_CONFIGS]]
        assert len(replies) == CLIENTS
        for reply in replies:
            metrics = {name: dict(record) for name, record in reply.content.metric_records.items()}
            assert metrics == {"fitres.num_examples": {"num_examples": 1}}
            assert all(not record for record in reply.content.array_records.values())
        vectors = {
            reply.metadata.src_node_id: bytes_to_ndarray(reply.content[RECORD_KEY_CONFIGS][Key.MASKED_PARAMETERS][1])
            for reply in replies
        }
        seen.append(np.stack([vectors[node] for node in sorted(vectors)]))
    first, second = seen
    assert first.shape == (CLIENTS, 126)
    assert np.mean(first == second) < 0.01
    shares = np.histogram(first, bins=8, range=(0, 2**32))[0] / first.size
    assert shares.min() > 0.07 and shares.max() < 0.2
    plain = np.stack([np.concatenate([update(n)[name].ravel() for name in ("weight", "bias")]) for n in range(CLIENTS)])
    assert abs(np.corrcoef(first[:, :124].ravel(), plain.ravel())[0, 1]) < 0.15


STAGES = [Stage.SETUP, Stage.SHARE_KEYS, Stage.COLLECT_MASKED_VECTORS]


@pytest.mark.parametrize("stage", STAGES)
def test_clients_that_leave_in_the_middle_are_left_out_and_the_others_count(stage):
    grid = hidden()
    gone = {1002, 1005}

    def lost(message):
        configs = message.content.config_records.get(RECORD_KEY_CONFIGS, {})
        return configs.get(Key.STAGE) == stage and message.metadata.dst_node_id in gone

    grid.lost = lost
    arrays, _ = one_round(RobustStrategy(), SecureGrid(grid))
    close(arrays, expected([0, 1, 3, 4, 6]))


def test_clients_that_leave_one_after_another_are_left_out():
    grid = hidden()
    leaving = dict(zip(STAGES, (1001, 1003, 1006), strict=True))

    def lost(message):
        stage = message.content.config_records.get(RECORD_KEY_CONFIGS, {}).get(Key.STAGE)
        return leaving.get(stage) == message.metadata.dst_node_id

    grid.lost = lost
    arrays, _ = one_round(RobustStrategy(), SecureGrid(grid))
    close(arrays, expected([0, 2, 4, 5]))


def test_a_round_that_too_many_leave_has_no_result_and_the_next_one_has():
    def fail(numbers_that_fail):
        return [app(n, secure_mods(), fail=(1,) if n in numbers_that_fail else ()) for n in range(CLIENTS)]

    grid = SecureGrid(LocalGrid(fail({0, 1, 2, 3})))
    strategy = RobustStrategy()
    arrays, _ = one_round(strategy, grid)
    for name, array in model().items():
        np.testing.assert_array_equal(numbers(arrays)[name], array)
    arrays, _ = one_round(strategy, grid, number=2)
    close(arrays, expected())


def test_an_update_that_would_be_cut_or_is_not_finite_makes_its_client_fail_and_not_the_round():
    def change(number):
        added = update(number)
        if number == 2:
            added["bias"] = np.full(4, 8.5, np.float32)
        if number == 4:
            added["bias"] = np.full(4, np.nan, np.float32)
        return added

    grid = hidden(change=change)
    arrays, _ = one_round(RobustStrategy(), SecureGrid(grid))
    close(arrays, expected([0, 1, 3, 5, 6]))
    reasons = " ".join(reply.error.reason for reply in grid.seen if reply.has_error())
    assert "raise the clipping_range" in reasons and "not finite" in reasons


def test_a_client_with_more_examples_than_allowed_fails():
    grid = hidden()
    arrays, _ = one_round(RobustStrategy(), SecureGrid(grid, most_examples=499))
    close(arrays, expected(range(6), weights=EXAMPLES[:6]))


def test_a_client_that_breaks_the_protocol_costs_a_round_and_not_the_run(caplog):
    broken = ClientApp()
    broken.train()(lambda message, context: Message(RecordDict({"x": ConfigRecord()}), reply_to=message))
    honest = [app(number, secure_mods()) for number in range(CLIENTS - 1)]
    arrays, _ = one_round(RobustStrategy(), SecureGrid(LocalGrid([*honest, broken])))
    for name, array in model().items():
        np.testing.assert_array_equal(numbers(arrays)[name], array)
    assert "the round has no result" in caplog.text


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if name != "mean"])
def test_rules_that_need_single_updates_are_refused(name):
    with pytest.raises(ConfigError, match=rf"only the sum of the updates, and {name} needs every single one"):
        check_secure(AGGREGATORS[name]())


def test_a_chain_that_ends_in_the_mean_is_refused_too():
    with pytest.raises(ConfigError, match=r"clipping\+mean"):
        check_secure(Clipping() >> Mean())


@pytest.mark.parametrize("name", ["term", "q-ffl", "afl"])
def test_objectives_that_weigh_by_losses_are_refused(name):
    with pytest.raises(ConfigError, match=f"hides the losses of single clients, and {name}"):
        check_secure(Mean(), OBJECTIVES[name]())


@pytest.mark.parametrize("name", ["fedavg", "fedsgd", "fedprox"])
def test_the_mean_is_allowed(name):
    check_secure(Mean(), OBJECTIVES[name]())
    check_secure(Mean())


@pytest.mark.parametrize(("aggregator", "objective"), [(Krum(), FedAvg()), (Mean(), Term())])
def test_a_strategy_on_a_secure_grid_is_refused_before_a_message_is_sent(aggregator, objective):
    grid = hidden()
    with pytest.raises(ConfigError, match="secure aggregation"):
        RobustStrategy(aggregator, objective, f=0).start(SecureGrid(grid), ArrayRecord(), num_rounds=1)
    assert not grid.seen


def test_masks_depend_on_every_bit_of_their_seed_and_flowers_on_thirty_two():
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    from holdfast.integrations.flower.secure import long_masks

    seed = bytes(range(32))
    twin = bytes([*seed[:4], *seed[8:12], *seed[4:8], *seed[12:]])  # the same once folded into 32 bits
    shape = [(1000,)]
    assert np.array_equal(pseudo_rand_gen(seed, 2**32, shape)[0], pseudo_rand_gen(twin, 2**32, shape)[0])
    ours = long_masks(seed, 2**32, shape)[0]
    assert not (ours == long_masks(twin, 2**32, shape)[0]).any()
    for bit in range(256):
        other = bytearray(seed)
        other[bit // 8] ^= 1 << bit % 8
        assert (long_masks(bytes(other), 2**32, shape)[0] == ours).mean() < 0.01


def test_masks_are_uniform_and_of_the_shapes_that_were_asked_for():
    from holdfast.integrations.flower.secure import long_masks

    one, many, none = long_masks(b"seed", 2**20, [(), (300, 400), (0,)])
    assert (one.shape, many.shape, none.shape) == ((), (300, 400), (0,))
    assert 0 <= many.min() < 2**20 * 0.001 and 2**20 * 0.999 < many.max() < 2**20
    assert abs(many.mean() / 2**20 - 0.5) < 0.005
    with pytest.raises(ConfigError, match="power of two"):
        long_masks(b"seed", 1000, [()])


def test_masks_are_ours_while_the_protocol_runs_and_flowers_again_afterwards():
    import importlib

    from holdfast.integrations.flower import secure

    half = importlib.import_module(secure._SERVER_HALF)
    theirs = half.pseudo_rand_gen
    with secure._long_masks_in(secure._SERVER_HALF):
        assert half.pseudo_rand_gen is secure.long_masks
    assert half.pseudo_rand_gen is theirs
