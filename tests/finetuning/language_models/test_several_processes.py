"""Two processes of a launcher record what one does, with one message for each step."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from holdfast.finetuning import FineTuningSettings, Trajectories
from holdfast.finetuning.proxy import record_trajectories
from tests.finetuning.small import instructions, language, weights_of

SETTINGS = FineTuningSettings(epochs=2, batch_size=10, learning_rate=1e-2, most_tokens=60)
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import torch.distributed as dist
from holdfast.cli.common.processes import joined_processes
from tests.finetuning.language_models.test_several_processes import *
data = instructions()
proxy = language(data)
messages = []
with joined_processes("cpu") as processes:
    assert processes.count == 2
    reduce, gather = dist.all_reduce, dist.all_gather
    dist.all_reduce = lambda *given, **how: (messages.append("reduce"), reduce(*given, **how))[1]
    dist.all_gather = lambda *given, **how: (messages.append("gather"), gather(*given, **how))[1]
    options = {"template": "plain", "every": 2, "processes": processes}
    found = record_trajectories(data, proxy, Path(sys.argv[1]), SETTINGS, **options)
    # One message for each of six steps and each of three points, and one barrier (of two messages) at the end.
    assert messages == ["reduce", "reduce", "reduce"] * 3 + ["gather"] * 2, messages
found.save(Path(sys.argv[1]) / f"found-{processes.index}.parquet")
np.save(Path(sys.argv[1]) / f"weights-{processes.index}.npy", weights_of(proxy.model))
"""


def test_two_processes_record_what_one_does(tmp_path: Path) -> None:
    data = instructions()
    proxy = language(data)
    alone = record_trajectories(data, proxy, tmp_path / "one", SETTINGS, template="plain", every=2)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=180) for process in running] == [0, 0]
    for rank in range(2):
        found = Trajectories.load(tmp_path / f"found-{rank}.parquet")
        assert found.steps == alone.steps == (2, 4, 6)
        np.testing.assert_allclose(found.losses, alone.losses, atol=2e-4)
    first, second = (np.load(tmp_path / f"weights-{rank}.npy") for rank in range(2))
    assert np.array_equal(first, second)
    np.testing.assert_allclose(first, weights_of(proxy.model), atol=2e-3)
