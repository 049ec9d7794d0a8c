"""A federation's server for tests: SuperLink and nginx, on loopback, as `holdfast federation init` sets them up."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from holdfast.integrations.flower.charter import Charter, ModelIdentity, parameters_of
from holdfast.integrations.flower.operation.federation_folder import FederationFolder
from holdfast.integrations.flower.operation.founding import found
from holdfast.integrations.flower.rehearsal.deployment import _free_port


def small_federation(path: Path) -> FederationFolder:
    """A federation of a linear model, on free ports."""
    charter = Charter(ModelIdentity("softmax"), parameters_of(nn.Linear(4, 2)), (4,), 2)
    ports = [_free_port(), _free_port()]
    return found(
        path,
        charter=charter,
        options={"model": "softmax"},
        hosts=["127.0.0.1"],
        listen=f"127.0.0.1:{ports[0]}",
        superlink=f"127.0.0.1:{ports[1]}",
    )
