"""Personal models read from a run directory are those that the federation had when it ended."""

import os
from dataclasses import replace

import pytest
import torch
from torch import nn

from holdfast.data import Examples
from holdfast.errors import CheckpointError, ConfigError, DataError
from holdfast.federated.aggregation import Mean
from holdfast.federated.attacks import ModelReplacement
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.federation import run_federation
from holdfast.federated.personalization import Ditto, FineTuning, Local
from holdfast.federated.preparation import prepare
from holdfast.federated.run_files import FederationSpec, save_outcome
from holdfast.federated.saved_models import personal_models, scores_by_client, shared_weights
from holdfast.models import ModelSpec
from holdfast.training import Run
from holdfast.training.model_card import ModelCard, input_facts
from holdfast.training.prediction import PredictionData, class_scores
from holdfast.training.trained import TrainedModel
from tests.federated.personalization.test_everywhere import METHODS, net_for, short
from tests.federated.personalization.toy import SETTINGS
from tests.federated.toy import convolutional, toy_clients

QUICK = replace(SETTINGS, rounds=3, cohort=4, executor="serial")


class Toy(ModelSpec):
    """A spec of the toys' network, which has no name."""

    def skeleton(self):
        return convolutional(dropout=0.3, norm=True, tracked=True)


def prepared(*methods, clients=None, **options):
    clients = clients or toy_clients(shape=(1, 8, 8))
    return prepare(clients, Toy("toy", (1, 8, 8), 3).skeleton(), QUICK, personalize=methods, **options)


def finished(path, made):
    run = Run.create(path, {}, kind="federation")
    outcome = run_federation(made, run=run)
    spec = FederationSpec("toy", "toy", made.settings, made.objective, made.aggregator, made.threat)
    save_outcome(run, outcome, made.clients, spec)
    return run, outcome


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", METHODS)
def test_of_every_method_a_clients_model_is_that_of_the_outcome(tmp_path, name):
    from tests.federated.personalization.toy import clients as few
    from tests.federated.personalization.toy import model

    data, method = few(), short(METHODS[name])
    made = [prepare(data, net_for(method) or model(), QUICK, personalize=[method]) for _ in range(2)]
    run, outcome = finished(tmp_path / "run", made[0])
    for label in outcome.runtime.stores:
        models = personal_models(run, made[1], label)
        for client in range(len(data)):
            assert same(models.state_dict(client), outcome.personal(label, client).state_dict()), client


def test_names_of_weights_are_the_models_own_with_dropout_and_running_statistics(tmp_path):
    run, outcome = finished(tmp_path / "run", prepared(Ditto(), FineTuning(epochs=1)))
    plain = Toy("toy", (1, 8, 8), 3).skeleton()
    plain.load_state_dict(run.weights(), strict=True)
    models = personal_models(run, prepared(Ditto(), FineTuning(epochs=1)), "finetuning")
    plain.load_state_dict(models.state_dict(2), strict=True)
    assert models.names == [str(client) for client in range(8)]
    assert not torch.equal(plain.state_dict()["0.weight"], run.weights()["0.weight"])
    assert same(run.weights(), shared_weights(run, prepared()))
    assert run.card.inputs[0].shape == (1, 8, 8)
    assert outcome.reports


def test_who_never_took_part_has_the_shared_model(tmp_path):
    made = [prepare(toy_clients(), nn.Linear(6, 3), replace(QUICK, rounds=1, cohort=2), personalize=[Local()])] * 2
    run, outcome = finished(tmp_path / "run", made[0])
    models = personal_models(run, made[1])
    absent = int((outcome.joined == 0).nonzero()[0])
    assert not models.took_part(absent) and same(models.state_dict(absent), run.weights())
    assert models.took_part(int(outcome.joined.argmax()))


def test_under_attack_clients_models_are_those_of_the_outcome(tmp_path):
    options = {"threat": Threat(ModelReplacement(), 0.25), "aggregator": Mean()}
    run, outcome = finished(tmp_path / "run", prepared(Ditto(0.5), **options))
    models = personal_models(run, prepared(Ditto(0.5), **options))
    assert same(models.state_dict(4), outcome.personal(models.label, 4).state_dict())


def test_nothing_of_the_run_is_written(tmp_path):
    run, _ = finished(tmp_path / "run", prepared(Local()))
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.path.rglob("*")}
    os.utime(run.path)
    personal_models(run, prepared(Local())).state_dict(1)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in before} == before


def test_what_can_not_be_given_is_refused(tmp_path):
    run, _ = finished(tmp_path / "run", prepared(Ditto(), Local()))
    with pytest.raises(ConfigError, match="has models by ditto-auto, local; say which with --method"):
        personal_models(run, prepared(Ditto(), Local()))
    with pytest.raises(ConfigError, match="no models by 'loca'; did you mean 'local'"):
        personal_models(run, prepared(Ditto(), Local()), "loca")
    with pytest.raises(ConfigError, match="a shared model only"):
        personal_models(run, prepared())
    with pytest.raises(ConfigError, match="no client 'x'"):
        personal_models(run, prepared(Ditto(), Local()), "local").find("x")
    with pytest.raises(CheckpointError, match="bytes and these clients"):
        other = prepared(Ditto(), Local(), clients=toy_clients(sizes=(5, 8, 9, 12, 7), shape=(1, 8, 8)))
        personal_models(run, other, "local")
    (run.path / "personal" / "local.rows").unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        personal_models(run, prepared(Ditto(), Local()), "local")
    assert not (run.path / "personal" / "local.rows").exists()


def test_each_example_is_predicted_by_its_own_clients_model_in_whatever_order(tmp_path):
    made = prepared(FineTuning(epochs=3))
    run, outcome = finished(tmp_path / "run", made)
    models, part = personal_models(run, prepared(FineTuning(epochs=3))), made.clients.test
    order = torch.randperm(len(part.labels), generator=torch.Generator().manual_seed(1))
    owners = part.owners()[order]
    data = PredictionData(
        Examples.of(part.inputs[order], part.labels[order], class_names=list("abc")),
        clients=[str(owner) for owner in owners.tolist()],
    )
    trained = TrainedModel(outcome.model(), ModelCard(input_facts(part.inputs)), Toy("toy", (1, 8, 8), 3))
    scores = scores_by_client(models, trained, data, class_scores)
    right = scores.predicted == data.examples.labels
    report = outcome.reports["finetuning"].scores
    assert [int(right[owners == client].sum()) for client in range(8)] == report.correct.tolist()
    with pytest.raises(DataError, match="does not say which client"):
        scores_by_client(models, trained, replace(data, clients=None), class_scores)
    with pytest.raises(ConfigError, match="no client 'nobody'"):
        scores_by_client(models, trained, replace(data, clients=["nobody"] * len(right)), class_scores)
