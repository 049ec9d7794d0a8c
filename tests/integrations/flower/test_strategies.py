"""Any aggregator and objective behind Flower's strategy interface: right, in order, and not stopped by a client."""

from __future__ import annotations

import logging
import random
from io import BytesIO

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdagrad as FlowerFedAdagrad
from flwr.serverapp.strategy import FedAdam as FlowerFedAdam
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from flwr.serverapp.strategy import FedAvgM as FlowerFedAvgM
from flwr.serverapp.strategy import FedYogi as FlowerFedYogi
from flwr.serverapp.strategy import MultiKrum as FlowerMultiKrum

from holdfast.errors import ConfigError
from holdfast.federated import AGGREGATORS, Clipping, FedProx, Krum, MultiKrum, QFair, Term, TrimmedMean
from holdfast.federated.scaffold import Scaffold
from holdfast.federated.server.optimizers import SERVER_OPTIMIZERS, FedAdagrad, FedAdam, FedAvgM, FedYogi
from holdfast.integrations.flower.strategies import DROPPED, RobustStrategy
from tests.integrations.flower.local_grid import LocalGrid, numbers, record_of, reply_to

CLIENTS = 9
LEARNING_RATE = 0.1
EXAMPLES = [10, 250, 3, 40, 40, 77, 9, 1000, 64]


def model():
    values = np.random.default_rng(0)
    return {
        "first.weight": values.normal(size=(7, 5)).astype(np.float32),
        "first.bias": values.normal(size=7).astype(np.float32),
        "norm.num_batches_tracked": np.array(12),
        "norm.running_var": values.uniform(size=7).astype(np.float32),
    }


def updates(scale=0.01):
    values = np.random.default_rng(1)
    sent = model()
    return [
        {name: (scale * values.normal(size=array.shape)).astype(np.float32) for name, array in sent.items()}
        for _ in range(CLIENTS)
    ]


def losses():
    return np.random.default_rng(2).uniform(0.2, 2, CLIENTS).tolist()


def app(number, update, **changed):
    """A client that adds a fixed update."""
    client = ClientApp()

    @client.train()
    def train(message, context):
        received = numbers(message.content["arrays"])
        sent = {
            name: array + update[name] if array.dtype.kind == "f" else array + 5 for name, array in received.items()
        }
        metrics = {
            "partition_id": number,
            "num_examples": EXAMPLES[number],
            "loss": losses()[number],
            "accuracy": 0.1 * number,
        }
        return reply_to(message, sent, **(metrics | changed))

    return client


def grid(**options):
    return LocalGrid([app(number, update) for number, update in enumerate(updates())], **options)


def one_round(strategy, where, arrays=None):
    sent = record_of(arrays or model())
    replies = where.send_and_receive(strategy.configure_train(1, sent, ConfigRecord(), where))
    return strategy.aggregate_train(1, replies)


def stacked():
    """The updates as rows: what clients sent less what they received, in float32."""
    sent = model()
    floating = [name for name, array in sent.items() if array.dtype.kind == "f"]
    rows = [
        np.concatenate([((sent[name] + update[name]) - sent[name]).ravel() for name in floating])
        for update in updates()
    ]
    return torch.from_numpy(np.stack(rows))


def moved(step):
    sent, start = model(), 0
    for name, array in sent.items():
        if array.dtype.kind == "f":
            sent[name] = array + step[start : start + array.size].numpy().reshape(array.shape)
            start += array.size
    return sent


def equal(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def close(found, expected, atol):
    for name, array in expected.items():
        if found[name].dtype.kind == "f":
            # Node ids are random and name the order in which Flower adds up: two roundings of float32 in each value.
            np.testing.assert_allclose(found[name], array, rtol=2.4e-7, atol=atol, err_msg=name)


@pytest.mark.parametrize("name", [*(name for name in AGGREGATORS if name != "momentum"), "nnm+multi-krum"])
def test_the_result_is_the_aggregator_on_the_updates_in_the_order_of_clients(name):
    f = 1 if name == "bulyan" else 2  # of nine it stands one
    strategy = RobustStrategy(name, f=f)
    arrays, _ = one_round(strategy, grid())
    step = strategy.aggregator(stacked(), f=f, losses=torch.tensor(losses(), dtype=torch.float64))
    expected = moved(step)
    expected["norm.running_var"] = expected["norm.running_var"].clip(min=0)
    equal(numbers(arrays), expected)


@pytest.mark.parametrize("aggregator", ["mean", Clipping()])
@pytest.mark.parametrize("objective", [Term(t=2.0), QFair(q=2.0)])
def test_the_result_is_that_of_the_objective(objective, aggregator):
    strategy = RobustStrategy(aggregator, objective, learning_rate=LEARNING_RATE)
    arrays, _ = one_round(strategy, grid())
    step, _ = objective.combine(
        stacked(),
        torch.tensor(losses(), dtype=torch.float64),
        cohort=torch.arange(CLIENTS),
        aggregator=strategy.aggregator,
        f=0,
        state={},
        learning_rate=LEARNING_RATE,
    )
    equal(numbers(arrays), moved(step))


OPTIMIZERS = {
    "fedavgm": (FedAvgM(0.7, 0.8), FlowerFedAvgM(server_learning_rate=0.7, server_momentum=0.8)),
    "fedadagrad": (FedAdagrad(0.02, tau=1e-2), FlowerFedAdagrad(eta=0.02, tau=1e-2)),
    "fedadam": (
        FedAdam(0.03, 0.8, 0.95, tau=1e-2),
        FlowerFedAdam(eta=0.03, beta_1=0.8, beta_2=0.95, tau=1e-2),
    ),
    "fedyogi": (
        FedYogi(0.03, 0.8, 0.95, tau=1e-2),
        FlowerFedYogi(eta=0.03, beta_1=0.8, beta_2=0.95, tau=1e-2),
    ),
}


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_four_rounds_of_a_server_optimizer_are_those_of_flowers_own_strategy(name):
    optimizer, theirs = OPTIMIZERS[name]
    values = np.random.default_rng(4)
    rounds = [values.normal(scale=0.1, size=(CLIENTS, 40)).astype(np.float32) for _ in range(4)]
    start = values.normal(size=40).astype(np.float32)
    found = []
    for strategy in (RobustStrategy(server_optimizer=optimizer), theirs):
        arrays = record_of({"w": start})
        for number, sent in enumerate(rounds, 1):
            where = LocalGrid([app(place, {"w": row}, num_examples=5) for place, row in enumerate(sent)])
            replies = where.send_and_receive(strategy.configure_train(number, arrays, ConfigRecord(), where))
            arrays, _ = strategy.aggregate_train(number, replies)
        found.append(numbers(arrays)["w"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6, rtol=0)
    assert np.abs(found[0] - start).max() > 1e-2


def test_running_statistics_are_averaged_and_not_moved_by_a_server_optimizer():
    plain, moved_ = (one_round(RobustStrategy(server_optimizer=each), grid())[0] for each in (None, "fedadam"))
    names = ["norm.running_var", "norm.num_batches_tracked"]
    equal({name: numbers(moved_)[name] for name in names}, {name: numbers(plain)[name] for name in names})
    assert not np.allclose(numbers(moved_)["first.weight"], numbers(plain)["first.weight"])


def test_an_objective_with_a_second_vector_must_know_how_many_clients_there_are():
    with pytest.raises(ConfigError, match="scaffold must know how many clients the federation has"):
        RobustStrategy("mean", Scaffold())


def test_the_weighted_mean_is_flowers_fedavg():
    ours, metrics = one_round(RobustStrategy(weighted=True), grid())
    theirs, their_metrics = one_round(FlowerFedAvg(), grid())
    close(numbers(ours), numbers(theirs), atol=3e-7)
    assert metrics["accuracy"] == pytest.approx(their_metrics["accuracy"], abs=1e-12)


def test_the_mean_is_flowers_fedavg_where_clients_have_equally_many_examples():
    clients = [app(number, update, num_examples=20) for number, update in enumerate(updates())]
    ours, _ = one_round(RobustStrategy(), LocalGrid(clients))
    theirs, _ = one_round(FlowerFedAvg(), LocalGrid(clients))
    close(numbers(ours), numbers(theirs), atol=3e-7)


@pytest.mark.parametrize("name", ["mean", "multi-krum", "geometric-median", "clipping", "fedmgda", "tilted-mean"])
def test_the_order_of_replies_does_not_matter_to_the_bit(name):
    found = []
    for seed in range(4):
        where = grid()
        where.order = lambda replies, seed=seed: random.Random(seed).sample(replies, len(replies))
        strategy = RobustStrategy(name, f=2, weighted=name == "mean")
        found.append(one_round(strategy, where))
    for arrays, metrics in found[1:]:
        equal(numbers(arrays), numbers(found[0][0]))
        assert dict(metrics) == dict(found[0][1])


def test_clients_keep_their_place_when_nodes_get_other_ids():
    """Node ids are random in every run; here the partitions sit on other nodes."""
    clients = [app(number, update) for number, update in enumerate(updates())]
    straight, _ = one_round(RobustStrategy("krum", f=2), LocalGrid(clients))
    mixed, _ = one_round(RobustStrategy("krum", f=2), LocalGrid(clients[3:] + clients[:3]))
    equal(numbers(mixed), numbers(straight))


def test_multi_krum_finds_a_sign_flip_of_tiny_updates_that_flowers_keeps():
    """|w| is 21 and honest updates have norm 0.003: Flower's distances between float32 weights are noise there."""
    values = np.random.default_rng(3)
    start = values.normal(size=20_522).astype(np.float32)
    start *= 21 / np.linalg.norm(start)
    common = values.normal(size=start.size)
    common *= 0.0025 / np.linalg.norm(common)
    kept = {"ours": 0, "flower": 0}
    for _ in range(5):
        noise = values.normal(size=(10, start.size))
        noise *= 0.0017 / np.linalg.norm(noise, axis=1)[:, None]
        honest = common + noise
        honest[:2] *= -1
        clients = [
            app(number % CLIENTS, {"w": row.astype(np.float32)}, partition_id=number, num_examples=1)
            for number, row in enumerate(honest)
        ]
        for who, strategy in (
            ("ours", RobustStrategy(MultiKrum(keep=8), f=2)),
            ("flower", FlowerMultiKrum(num_malicious_nodes=2, num_nodes_to_select=8)),
        ):
            arrays, _ = one_round(strategy, LocalGrid(clients), {"w": start})
            step = numbers(arrays)["w"].astype(np.float64) - start
            kept[who] += float(step @ common) / float(common @ common) < 0.9
    assert kept["ours"] == 0
    assert kept["flower"] > 0


# -------------------------------------------------------------------------------------------------- hostile replies


def with_arrays(**changed):
    def answer(message):
        arrays = numbers(message.content["arrays"]) | changed
        return reply_to(message, arrays, partition_id=8, num_examples=64, loss=1.0, accuracy=0.8)

    return answer


def with_metrics(**changed):
    def answer(message):
        metrics = {"partition_id": 8, "num_examples": 64, "loss": 1.0, "accuracy": 0.8} | changed
        metrics = {name: value for name, value in metrics.items() if value is not None}
        return reply_to(message, numbers(message.content["arrays"]), **metrics)

    return answer


def with_array(**claims):
    def answer(message):
        reply = with_metrics()(message)
        old = reply.content["arrays"]["first.bias"]
        reply.content["arrays"]["first.bias"] = Array(
            **{"dtype": old.dtype, "shape": old.shape, "stype": old.stype, "data": old.data} | claims
        )
        return reply

    return answer


def npy(array, **header):
    stream = BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": array.shape} | header
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue() + array.tobytes()


def pickled():
    stream = BytesIO()
    np.save(stream, np.array([{}] * 7, dtype=object), allow_pickle=True)
    return stream.getvalue()


BIAS = np.ones(7, dtype=np.float32)
HOSTILE = {
    "not a number": with_arrays(**{"first.bias": np.full(7, np.nan, np.float32)}),
    "infinite": with_arrays(**{"first.bias": np.full(7, -np.inf, np.float32)}),
    "another shape": with_arrays(**{"first.bias": np.ones(8, np.float32)}),
    "transposed": with_arrays(**{"first.weight": np.ones((5, 7), np.float32)}),
    "another dtype": with_arrays(**{"first.bias": np.ones(7, np.float64)}),
    "integers": with_arrays(**{"first.bias": np.ones(7, np.int32)}),
    "an array too many": with_arrays(more=BIAS),
    "an array too few": lambda message: reply_to(message, {"first.bias": BIAS}, partition_id=8, num_examples=64),
    "claims ten gigabytes": with_array(shape=(50_000, 50_000)),
    "hides ten gigabytes": with_array(data=npy(BIAS, shape=(2_684_354_560,))),
    "sends more bytes than claimed": with_array(data=npy(np.ones(7000, np.float32))),
    "hides another dtype": with_array(data=npy(BIAS, descr="<i4")),
    "a pickle": with_array(data=pickled()),
    "no bytes": with_array(data=b""),
    "random bytes": with_array(data=b"\x93NUMPY\x01\x00\xff\xffgarbage"),
    "nested header": with_array(data=b"\x93NUMPY\x01\x00\xf0\x01" + b"(" * 496),
    "another serialization": with_array(stype="pickle"),
    "negative examples": with_metrics(num_examples=-64),
    "no examples": with_metrics(num_examples=0),
    "absurdly many examples": with_metrics(num_examples=10**15),
    "examples that are no number": with_metrics(num_examples=float("nan")),
    "a list of examples": with_metrics(num_examples=[1, 2]),
    "examples missing": with_metrics(num_examples=None),
    "an id that is none": with_metrics(partition_id=0.5),
    "loss missing": with_metrics(loss=None),
    "a negative loss": with_metrics(loss=-1.0),
    "an infinite loss": with_metrics(loss=float("inf")),
    "no records": lambda message: Message(RecordDict(), reply_to=message),
    "two array records": lambda message: Message(
        RecordDict({"a": record_of(model()), "b": record_of(model()), "m": MetricRecord({"num-examples": 1})}),
        reply_to=message,
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_reply_is_left_out_and_counted(what, caplog):
    """The last of nine is hostile; what is left is the result of the other eight, with one attacker fewer expected."""
    hostile = ClientApp()
    hostile.train()(lambda message, context: HOSTILE[what](message))
    honest = [app(number, update) for number, update in enumerate(updates()[:8])]
    strategy = RobustStrategy("k-loss", f=2)
    with caplog.at_level(logging.WARNING):
        arrays, metrics = one_round(strategy, LocalGrid([*honest, hostile]))
    expected, _ = one_round(RobustStrategy("k-loss", f=1), LocalGrid(honest))
    equal(numbers(arrays), numbers(expected))
    assert metrics[DROPPED] == 1
    assert [(one.round, one.node) for one in strategy.dropped] == [(1, 1008)]
    assert strategy.dropped[0].reason in caplog.text


def test_metrics_that_differ_from_most_are_not_averaged_and_the_update_still_counts():
    odd = app(8, updates()[8], accuracy=[1.0, 2.0])
    where = LocalGrid([*(app(number, update) for number, update in enumerate(updates()[:8])), odd])
    arrays, metrics = one_round(RobustStrategy(), where)
    expected, _ = one_round(RobustStrategy(), grid())
    equal(numbers(arrays), numbers(expected))
    honest = [0.1 * number for number in range(8)]
    assert metrics["accuracy"] == pytest.approx(np.average(honest, weights=EXAMPLES[:8]))
    assert "partition-id" not in metrics


def test_replies_of_strangers_and_second_replies_are_left_out():
    where = grid()
    strategy = RobustStrategy()
    messages = list(strategy.configure_train(1, record_of(model()), ConfigRecord(), where))
    replies = where.send_and_receive(messages)
    stranger = Message(RecordDict(), 4711, "train")
    foreign = reply_to(stranger, model(), partition_id=3, num_examples=5, loss=1.0, accuracy=1.0)
    arrays, _ = strategy.aggregate_train(1, [*replies, replies[3], foreign])
    expected, _ = one_round(RobustStrategy(), grid())
    equal(numbers(arrays), numbers(expected))
    assert [one.node for one in strategy.dropped] == [replies[3].metadata.src_node_id, 4711]


def test_a_round_in_which_nobody_answers_properly_keeps_the_model():
    def fail(message, context):
        raise RuntimeError("no disk")

    broken = ClientApp()
    broken.train()(fail)
    arrays, metrics = one_round(RobustStrategy(), LocalGrid([broken, broken]))
    equal(numbers(arrays), model())
    assert dict(metrics) == {DROPPED: 0}
    arrays, _ = one_round(RobustStrategy("median"), LocalGrid([hostile_app("not a number"), hostile_app("no records")]))
    equal(numbers(arrays), model())


def hostile_app(what):
    client = ClientApp()
    client.train()(lambda message, context: HOSTILE[what](message))
    return client


def test_too_few_replies_for_the_rule_keep_the_model(caplog):
    where = grid()
    strategy = RobustStrategy("trimmed-mean", f=4)
    where.lost = lambda message: message.metadata.dst_node_id > 1006
    arrays, _ = one_round(strategy, where)
    equal(numbers(arrays), model())
    assert "kept as it was" in caplog.text


def test_a_model_that_would_overflow_is_kept(caplog):
    big = {name: np.full(array.shape, 2e38, np.float32) for name, array in model().items()}
    strategy = RobustStrategy(weighted=True)
    start = {"first.bias": np.full(7, 3e38, np.float32)}

    def answer(message, context):
        return reply_to(message, {"first.bias": big["first.bias"]}, num_examples=1)

    shrinking = ClientApp()
    shrinking.train()(answer)
    arrays, _ = one_round(strategy, LocalGrid([shrinking, shrinking]), start)
    np.testing.assert_allclose(numbers(arrays)["first.bias"], 2e38, rtol=1e-6)
    boosted = RobustStrategy("fedmgda")
    boosted.aggregator = type(boosted.aggregator)(server_rate=1e39)
    arrays, _ = one_round(boosted, grid())
    equal(numbers(arrays), model())
    assert "no longer be finite" in caplog.text


def test_evaluation_is_not_stopped_by_a_client_either():
    def evaluator(number, metrics):
        client = ClientApp()
        client.evaluate()(
            lambda message, context: Message(
                RecordDict({"metrics": MetricRecord({"num-examples": EXAMPLES[number], **metrics})}), reply_to=message
            )
        )
        return client

    honest = [evaluator(number, {"accuracy": 0.1 * number}) for number in range(5)]
    hostile = [
        evaluator(5, {"accuracy": float("nan")}),
        evaluator(6, {"num-examples": -9, "accuracy": 1.0}),
        evaluator(7, {"accuracy": [1.0]}),
        evaluator(8, {}),
    ]
    where = LocalGrid([*hostile, *honest])
    strategy = RobustStrategy()
    messages = strategy.configure_evaluate(1, record_of(model()), ConfigRecord(), where)
    metrics = strategy.aggregate_evaluate(1, where.send_and_receive(messages))
    expected = np.average([0.1 * number for number in range(5)], weights=EXAMPLES[:5])
    assert metrics["accuracy"] == pytest.approx(expected)


def test_a_whole_training_runs_by_flowers_own_start_and_is_repeatable():
    def run(order):
        where = grid()
        where.order = order
        strategy = RobustStrategy("multi-krum", f=2, fraction_evaluate=0.0)
        return strategy.start(where, record_of(model()), num_rounds=4)

    first, second = run(list), run(lambda replies: replies[::-1])
    equal(numbers(first.arrays), numbers(second.arrays))
    assert sorted(first.train_metrics_clientapp) == [1, 2, 3, 4]


def test_fedprox_tells_clients_its_mu():
    where = grid()
    messages = list(
        RobustStrategy(objective=FedProx(mu=0.3)).configure_train(2, record_of(model()), ConfigRecord(), where)
    )
    assert messages[0].content["config"]["proximal-mu"] == 0.3
    assert messages[0].content["config"]["server-round"] == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"aggregator": "krumm"}, "did you mean 'krum'"),
        ({"aggregator": "krum", "objective": "term"}, "can't be combined with krum"),
        ({"objective": "q-ffl"}, "learning_rate"),
        ({"objective": "afl"}, "holdfast federate"),
        ({"aggregator": "median", "weighted": True}, "median has weights of its own"),
        ({"objective": "term", "weighted": True}, "term has weights of its own"),
        ({"f": -1}, "give 0 or more"),
        ({"aggregator": "multi-krum"}, "must know how many malicious replies"),
        ({"aggregator": "momentum+median"}, "does not know who is who"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_round(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        RobustStrategy(**options)


def test_a_rule_that_is_not_defined_for_the_number_of_clients_is_refused_before_they_work():
    with pytest.raises(ConfigError, match="drops 5 updates on each side"):
        one_round(RobustStrategy(TrimmedMean(), f=5), grid())


def test_a_rule_with_a_memory_goes_on_from_it_and_another_strategy_can_take_it_over():
    whole, first, second = (RobustStrategy("centred-clipping") for _ in range(3))
    for strategy in (whole, first):
        one_round(strategy, grid())
    assert set(first.memory) == {"centred-clipping/centre"}
    second.memory = first.memory
    after = [
        numbers(one_round(strategy, grid())[0]) for strategy in (whole, second, RobustStrategy("centred-clipping"))
    ]
    equal(after[0], after[1])
    assert any(not np.array_equal(after[0][name], after[2][name]) for name in after[0])


def test_more_malicious_replies_than_a_rule_stands_are_refused_before_the_first_round():
    with pytest.raises(ConfigError, match="krum withstands 3 malicious replies among 9, and 4 are expected"):
        one_round(RobustStrategy(Krum(), f=4), grid())


def test_the_model_is_kept_where_so_few_answer_that_the_rule_no_longer_stands_the_rest(caplog):
    where = grid()
    where.lost = lambda message: message.metadata.dst_node_id >= 1006
    strategy = RobustStrategy(Krum(), f=2)
    arrays, _ = one_round(strategy, where)
    equal(numbers(arrays), model())
    assert "krum withstands 1 malicious replies among 6, and 2 are expected" in caplog.text


def test_a_failed_client_is_no_attacker():
    where = grid()
    strategy = RobustStrategy("k-norm", f=2)
    messages = list(strategy.configure_train(1, record_of(model()), ConfigRecord(), where))
    messages.sort(key=lambda message: message.metadata.dst_node_id)
    replies = where.send_and_receive(messages)
    failed = Message(Error(0, "gone"), reply_to=messages[8])
    arrays, metrics = strategy.aggregate_train(1, [*replies[:8], failed])
    equal(numbers(arrays), moved(strategy.aggregator(stacked()[:8], f=2)))
    assert metrics[DROPPED] == 0


def test_an_empty_array_and_a_column_order_are_no_reason_to_refuse():
    start = {"w": np.zeros((3, 2), np.float32), "none": np.zeros((0, 4), np.float32)}
    added = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))

    def answer(message, context):
        arrays = ArrayRecord({"w": Array(added), "none": Array(start["none"])})
        return Message(RecordDict({"a": arrays, "m": MetricRecord({"num-examples": 1})}), reply_to=message)

    client = ClientApp()
    client.train()(answer)
    arrays, _ = one_round(RobustStrategy(), LocalGrid([client, client]), start)
    np.testing.assert_array_equal(numbers(arrays)["w"], added)
    assert numbers(arrays)["none"].shape == (0, 4)
