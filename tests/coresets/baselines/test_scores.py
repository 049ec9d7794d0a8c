import pytest
import torch
import torch.nn.functional as F

from holdfast.coresets import El2n, Forgetting, Forgotten, Grand, el2n, grand
from holdfast.errors import ConfigError
from holdfast.training import Training, fit
from tests.coresets.toy import gaussians, net, toy_splits


def test_scores_are_norms_of_errors_and_of_last_layer_gradients():
    examples, models = gaussians(30), [net(seed=0), net(seed=1)]
    inputs, labels = examples.gather(torch.arange(30))
    errors, norms = [], []
    for model in models:
        errors.append((model(inputs).softmax(1) - F.one_hot(labels, 3)).norm(dim=1))
        head = model[-1]
        own = []
        for one, label in zip(inputs, labels, strict=True):
            loss = F.cross_entropy(model(one[None]), label[None])
            gradient = torch.autograd.grad(loss, [head.weight, head.bias])
            own.append(torch.cat([g.flatten() for g in gradient]).norm())
        norms.append(torch.stack(own))
    assert torch.allclose(el2n(models, examples), torch.stack(errors).mean(0), atol=1e-6)
    assert torch.allclose(grand(models, examples), torch.stack(norms).mean(0), atol=1e-5)


def test_forgetting_counts_turns_from_right_to_wrong():
    forgetting = Forgetting(4)
    for right in ([1, 0, 1, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 0, 1, 0]):
        forgetting.record(torch.tensor(right, dtype=torch.bool))
    assert forgetting.scores.tolist() == [2, 3, 0, 1]
    again = Forgetting(0)
    again.load_state_dict(forgetting.state_dict())
    assert again.scores.tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize("policy", [El2n, Grand, Forgotten])
@pytest.mark.parametrize("by_class", [True, False])
def test_the_hardest_are_kept_after_a_first_training(policy, by_class):
    splits = toy_splits()
    settings = Training(epochs=2, batch_size=16, learning_rate=0.1, select_by="accuracy")
    result = fit(net(), splits, policy(fraction=0.25, score_epochs=3, by_class=by_class), settings)
    assert [record["examples"] for record in result.history] == [240] * 3 + [60] * 2
    assert [record["stage"] for record in result.history] == [0] * 3 + [1] * 2


def test_a_second_run_forgets_what_was_forgotten_in_the_first():
    settings = Training(epochs=1, batch_size=16, learning_rate=0.1, select_by="accuracy")
    used = Forgotten(fraction=0.5, score_epochs=2)
    fit(net(), toy_splits(), used, settings)
    policies = used, Forgotten(fraction=0.5, score_epochs=2)
    first, second = (fit(net(), toy_splits(120), policy, settings) for policy in policies)
    assert first.test.accuracy == second.test.accuracy
    assert torch.equal(first.model[0].weight, second.model[0].weight)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match=r"score_epochs of el2n is 1\.5; give a whole number"):
        El2n(score_epochs=1.5)
    with pytest.raises(ConfigError, match="above 0, at most 1"):
        El2n(fraction=2)
    with pytest.raises(ConfigError, match="score_epochs of grand is 0"):
        Grand(score_epochs=0)
