import pytest

from benchmarks.federated.flower_costs import Row, ratios
from benchmarks.federated.flower_session import said


def rows(**cpu: tuple[float, ...]) -> list[Row]:
    clients = {"shards": 100}
    return [
        Row(system, turn, clients.get(system, 2), cost, wall=1.0, first=1.0, load=0.0)
        for system, costs in cpu.items()
        for turn, cost in enumerate(costs)
    ]


def test_ratios_are_taken_within_a_pass_and_per_client_where_numbers_differ() -> None:
    measured = rows(
        fedavg=(10.0, 20.0, 10.0), strategy=(10.0, 21.0, 12.0), engine=(8.0, 20.0, 9.0), shards=(8.0, 10.0, 9.0)
    )
    engine, strategy, shards, difference = ratios(measured, [1e-7, 3e-8])
    assert (engine.value, engine.better) == (pytest.approx(0.9), "lower")
    assert strategy.value == pytest.approx(1.05)
    assert strategy.spread == pytest.approx(0.1041, abs=1e-4)
    assert (shards.value, shards.target, shards.better) == (pytest.approx(50.0), 10.0, "higher")
    assert difference.value == 1e-7


def test_only_what_ran_is_compared() -> None:
    assert [ratio.name for ratio in ratios(rows(fedavg=(1.0,), strategy=(2.0,)), [])] == [
        "CPU per round, strategy / FedAvg"
    ]


def test_configurations_are_written_as_flower_reads_them() -> None:
    from flwr.common.config import parse_config_args

    config = {"partition-id": 3, "data": "/a folder/x", "clients": "0-49"}
    assert parse_config_args([said(config)]) == config
