import pytest

from holdfast.errors import ConfigError
from holdfast.integrations.trackers.mlflow import MLflow
from holdfast.integrations.trackers.tracker import trackers
from holdfast.training.events import Event
from holdfast.training.run import Run
from tests.integrations.tracked import CONFIG, run_fit

mlflow = pytest.importorskip("mlflow")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store in files; the variable is read anew by every client."""
    uri = (tmp_path / "store").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return mlflow.MlflowClient(tracking_uri=uri)


def only_run(store):
    experiment = store.get_experiment_by_name("holdfast")
    (run,) = store.search_runs([experiment.experiment_id])
    return run


def test_the_store_has_what_the_run_says(tmp_path, store):
    run = Run.create(tmp_path / "run", CONFIG)
    result = run_fit(run, trackers(["mlflow"], run))
    stored = only_run(store)
    assert stored.info.run_name == "run"
    assert stored.info.status == "FINISHED"
    assert stored.data.params == {
        "data": "toy", "training.epochs": "2", "training.optimizer": "sgd", "policies": "['resize']",
    }  # fmt: skip
    losses = {point.step: point.value for point in store.get_metric_history(stored.info.run_id, "train/loss")}
    assert losses == pytest.approx({2: result.history[0]["loss"], 6: result.history[1]["loss"]})
    active = {point.step: point.value for point in store.get_metric_history(stored.info.run_id, "plan/active")}
    assert active == {0: 16.0, 2: 32.0}
    assert stored.data.metrics["test/worst_group"] == pytest.approx(result.test.worst_accuracy)
    groups = result.history[-1]["validation"]["groups"]
    assert stored.data.metrics["validation/group/y1_a0"] == pytest.approx(groups[2]["accuracy"])


def test_a_run_that_continues_goes_on_in_its_mlflow_run(tmp_path, store):
    for active in (5, 6):
        MLflow(tmp_path / "it's mine", CONFIG)(Event("plan", active, active, {"active": active, "of": 50}))
    history = store.get_metric_history(only_run(store).info.run_id, "plan/active")
    assert [point.value for point in history] == [5.0, 6.0]


def test_many_parameters_fit_into_mlflows_requests(tmp_path, store):
    config = {f"option {number}": "x" * 9000 for number in range(130)}
    MLflow(tmp_path / "run", config)(Event("start", 0, 0, {}))
    parameters = only_run(store).data.params
    assert len(parameters) == 130
    assert {len(value) for value in parameters.values()} == {6000}


def test_a_store_that_mlflow_refuses_is_told_before_training(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    run = Run.create(tmp_path / "run", CONFIG)
    with pytest.raises(ConfigError, match="tracker mlflow can't be used"):
        run_fit(run, trackers(["mlflow"], run))
    assert run.results is None
