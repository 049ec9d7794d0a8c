import torch

from holdfast.federated.health import attack_strength, federation_health, lambda_at_edge
from holdfast.federated.personalization import Ditto
from tests.federated.personalization.toy import run

LAMBDAS = (0.1, 1.0, 2.0)


def test_clients_at_the_end_of_the_candidates_are_doubtful():
    at_end = torch.tensor([[0, 1, 9], [0, 2, 3], [0, 0, 5], [4, 0, 5], [0, 0, 0]])
    found = lambda_at_edge(at_end, LAMBDAS, LAMBDAS)
    assert (found.verdict, found.value) == ("doubtful", 1.0)
    assert "4 of 4 clients chose the largest candidate, lambda = 2" in found.sentence, "one never chose"
    inside = torch.tensor([[0, 9, 1], [0, 5, 3], [5, 0, 0]])
    assert lambda_at_edge(inside, LAMBDAS, LAMBDAS).verdict == "ok"


def test_a_lambda_for_those_who_cannot_choose_is_no_end():
    chosen = torch.tensor([[5, 0, 0], [5, 0, 0]])
    assert lambda_at_edge(chosen, LAMBDAS, (1.0, 2.0)).verdict == "ok"
    assert lambda_at_edge(chosen, LAMBDAS, (1.0,)) is None


def test_an_attack_is_too_weak_too_strong_or_as_wanted():
    def verdicts(fooled: float) -> list[str]:
        return [one.verdict for one in attack_strength(fooled, 0.03)]

    assert verdicts(0.01) == ["failed", "ok"]
    assert verdicts(0.2) == ["doubtful", "ok"]
    assert verdicts(0.4) == ["ok", "ok"]
    assert verdicts(0.9) == ["ok", "doubtful"]


def test_a_federation_that_chooses_lambda_is_checked_and_one_that_does_not_is_not():
    found = federation_health(run(Ditto("auto")))
    assert [one.check for one in found.findings] == ["lambda at the edge"]
    assert federation_health(run(Ditto(1.0))).findings == ()
