"""Holdfast's strategy instead of Flower's own FedAvg, for the ClientApp of `flower_app`, which knows no holdfast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flower_app import JOB, WORKLOAD, Record, flat
from flwr.app import ArrayRecord, Context, Message
from flwr.serverapp import Grid, ServerApp

from holdfast.integrations.flower.strategies import RobustStrategy

server_app = ServerApp()


class Timed(RobustStrategy):
    """Notes the end of each round."""

    def __init__(self, record: Record, **options: Any) -> None:
        super().__init__("mean", weighted=True, client_key="client", **options)
        self.record = record

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Aggregate the replies."""
        result = super().aggregate_train(server_round, replies)
        self.record.round_ended()
        return result


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and write the record."""
    model = WORKLOAD.new_model()
    record = Record.of(model)
    strategy = Timed(record, fraction_evaluate=0.0, min_available_nodes=WORKLOAD.clients, min_train_nodes=1)
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=JOB.rounds)
    model.load_state_dict(result.arrays.to_torch_state_dict())
    record.write(JOB, flat(model))
