"""Every tracker shows what a federation told its run, round by round and model by model."""

import pytest

from holdfast.cli.main import main
from holdfast.training import Run
from tests.integrations.trackers import test_tensorboard, test_wandb

for name in ("tensorboard", "mlflow", "wandb"):
    pytest.importorskip(name)


def test_the_numbers_of_a_federation_arrive_in_all_trackers(tmp_path, monkeypatch):
    import mlflow

    uri = (tmp_path / "store").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("WANDB_MODE", "offline")
    place = str(tmp_path / "run")
    asked = [
        "--rounds",
        "2",
        "--cohort",
        "5",
        "--executor",
        "serial",
        "--personalize",
        "ditto",
        "--evaluate-every",
        "1",
    ]
    assert main(["federate", *asked, "--track", "tensorboard", "mlflow", "wandb", "--out", place]) == 0
    run = Run.open(tmp_path / "run")
    told = [event for event in run.metrics() if event["event"] in ("epoch", "end")]
    wanted = {}
    for event in told:
        for label, summary in event.items():
            if isinstance(summary, dict) and "worst_tenth" in summary:
                for key, value in summary.items():
                    wanted.setdefault(f"clients/{label}/{key}", {})[event["step"]] = value
    assert any("ditto" in name for name in wanted) and all(len(points) == 2 for points in wanted.values())
    board = test_tensorboard.read(run.path / "tensorboard")
    files = test_wandb.read(run.path)[2]
    client = mlflow.MlflowClient(tracking_uri=uri)
    (stored,) = client.search_runs([client.get_experiment_by_name("holdfast").experiment_id])
    for name, points in wanted.items():
        assert board[name] == pytest.approx(points, rel=1e-6)
        assert files[name] == pytest.approx(points)
        assert stored.data.metrics[name] == pytest.approx(points[max(points)])
