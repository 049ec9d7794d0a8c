"""Two processes under accelerate record what one does, on devices that there are."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.finetuning import FineTuningSettings, Processes, Trajectories
from holdfast.finetuning.proxy import record_trajectories
from tests.finetuning.small import instructions, language, weights_of

SETTINGS = FineTuningSettings(epochs=2, batch_size=10, learning_rate=1e-2, most_tokens=60)
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from holdfast.finetuning import Processes
from tests.finetuning.language_models.test_processes import *
processes = Processes.started()
assert processes.count == 2
data = instructions()
proxy = language(data)
found = record_trajectories(data, proxy, Path(sys.argv[1]), SETTINGS, template="plain", every=2, processes=processes)
found.save(Path(sys.argv[1]) / f"found-{processes.index}.parquet")
np.save(Path(sys.argv[1]) / f"weights-{processes.index}.npy", weights_of(proxy.model))
"""


@pytest.mark.parametrize("asked", ["banana", "meta", *([] if torch.cuda.is_available() else ["cuda"])])
def test_a_client_that_is_not_here_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match=f"no computing on the device '{asked}' here .* give cpu"):
        Processes().device(asked)
    assert Processes().device("cpu") == torch.device("cpu")


def test_two_processes_record_what_one_does(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
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
