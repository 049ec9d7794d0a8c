"""FedAvg in Flower's Message API: the client's and the server's app, in a module that Ray's actors can import."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from workload import Record, current_job, flat

JOB, WORKLOAD = current_job()
client_data = functools.cache(WORKLOAD.client)
client_model = functools.cache(WORKLOAD.new_model)

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One client's epoch; its data and the module are kept by the actor between messages."""
    torch.set_num_threads(1)
    number = int(context.node_config["partition-id"])
    model = client_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = WORKLOAD.train(model, *client_data(number))
    metrics = MetricRecord({"loss": loss, "num-examples": WORKLOAD.examples, "client": number})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


class SortedFedAvg(FedAvg):
    """FedAvg that adds up in the order of clients, not of arrival, and notes the end of each round."""

    def __init__(self, record: Record, **options: Any) -> None:
        super().__init__(**options)
        self.record = record

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Average the replies."""
        result = super().aggregate_train(server_round, sorted(replies, key=lambda r: r.content["metrics"]["client"]))
        self.record.round_ended()
        return result


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and write the record."""
    model = WORKLOAD.new_model()
    record = Record.of(model)
    strategy = SortedFedAvg(
        record, fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=WORKLOAD.clients, min_train_nodes=1
    )
    arrays = ArrayRecord(model.state_dict())
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=JOB.rounds)
    model.load_state_dict(result.arrays.to_torch_state_dict())
    record.write(JOB, flat(model))
