from types import SimpleNamespace

import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.models import HUB_MODELS, MODELS, build, features_and_logits, find_head, logits_of

SHAPES = {
    "lenet5": (1, 28, 28),
    "mlp": (3, 4, 4),
    "linear": (5,),
    "cubic": (3, 5),
    "cubic-pure": (3, 5),
    "bag-of-words": (6,),
    "text-bag": (6,),
}


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(HUB_MODELS)))  # see test_text
def test_the_head_of_every_own_model_is_found_and_verified(name):
    shape = SHAPES.get(name, (3, 32, 32))
    model = build(name, shape, 2).eval()
    inputs = torch.randint(1, 9, (2, *shape)) if name == "text-bag" else torch.randn(2, *shape)
    features, logits = features_and_logits(model, inputs, verify=True)
    assert find_head(model)[1] is model.head
    assert torch.equal(features, model.features(inputs))
    assert torch.equal(logits, model(inputs))


def test_the_last_layer_of_a_sequential_is_the_head_even_where_an_earlier_one_looks_the_same():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    assert find_head(model) == ("3", model[3])


def test_a_bare_linear_layer_is_its_own_head():
    model = nn.Linear(3, 2)
    inputs = torch.randn(5, 3)
    assert find_head(model) == ("", model)
    assert features_and_logits(model, inputs, verify=True)[0] is inputs


class Auxiliary(nn.Module):
    """Two heads, as deeply supervised networks have; `names` are registered in that order."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        for name in names:
            self.add_module(name, nn.Linear(8, 3))
        self.main = names[-1]

    def forward(self, inputs):
        hidden = self.body(inputs).relu()
        return self.get_submodule(self.main)(hidden)


def test_a_known_name_goes_before_an_auxiliary_head():
    model = Auxiliary("aux1", "fc")
    assert find_head(model)[0] == "fc"
    assert find_head(Auxiliary("fc", "aux1"))[0] == "fc"


def test_equal_heads_under_unknown_names_are_listed_instead_of_guessed():
    model = Auxiliary("first_task", "second_task")
    with pytest.raises(ConfigError, match=r"'first_task' \(8 -> 3\), 'second_task' \(8 -> 3\): pass head=\"name\""):
        find_head(model)
    assert find_head(model, "second_task")[1] is model.second_task
    with pytest.raises(ConfigError, match="'first_task' of Auxiliary was run 0 times"):
        features_and_logits(model, torch.randn(2, 4), head="first_task")


def test_a_hidden_layer_under_a_known_name_is_not_taken_for_the_head():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 8)
            self.decide = nn.Linear(8, 3)

    with pytest.raises(ConfigError, match=r"'linear' \(4 -> 8\), 'decide' \(8 -> 3\)"):
        find_head(Net())
    layers = nn.Sequential()
    layers.add_module("linear", nn.Linear(4, 8))
    layers.add_module("decide", nn.Linear(8, 3))
    assert find_head(layers)[0] == "decide"


def test_two_known_names_are_ambiguous():
    with pytest.raises(ConfigError, match="can't be determined"):
        find_head(Auxiliary("head", "classifier"))


class HeadFirst(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, nn.Linear(6, 2))
        self.body = nn.Conv2d(1, 6, 3)

    def forward(self, inputs):
        return self.get_submodule(self.name)(self.body(inputs).mean(dim=(2, 3)))


def test_a_head_that_is_registered_first_is_found_by_a_known_name_or_asked_for():
    assert find_head(HeadFirst("classifier"))[0] == "classifier"
    model = HeadFirst("decide")
    with pytest.raises(ConfigError, match="decide"):
        find_head(model)
    features, _ = features_and_logits(model, torch.randn(2, 1, 5, 5), head="decide", verify=True)
    assert features.shape == (2, 6)


def test_a_known_part_that_ends_in_a_linear_layer_is_looked_into():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classifier = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Dropout(), nn.Linear(9, 3))
            self.extra = nn.Linear(4, 3)

    assert find_head(Net())[0] == "classifier.3"
    assert find_head(Net(), head="classifier")[0] == "classifier.3"


def test_wrappers_around_one_model_are_looked_through():
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    assert find_head(Wrapper(Wrapper(Auxiliary("aux", "fc"))))[0] == "module.module.fc"


@pytest.mark.parametrize(
    "model", [nn.Sequential(nn.Conv2d(1, 2, 3)), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), nn.ReLU()]
)
def test_a_model_that_does_not_end_in_a_linear_layer_has_no_head(model):
    with pytest.raises(ConfigError, match="can't be determined"):
        find_head(model)


def test_the_projection_inside_attention_is_not_taken_for_a_head():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(3, 4)
            self.attention = nn.MultiheadAttention(4, 1)

    with pytest.raises(ConfigError, match=r"candidates are 'embed' \(3 -> 4\): pass"):
        find_head(Net())


def test_a_name_that_is_not_there_lists_the_candidates():
    with pytest.raises(ConfigError, match=r"no part named 'fcc'; candidates are '0'"):
        find_head(nn.Sequential(nn.Linear(2, 2)), "fcc")


@pytest.mark.parametrize(
    ("after", "said"), [(nn.Softmax(-1), "differs from"), (nn.Unflatten(1, (3, 1)), r"shape \(2, 3\) .* \(2, 3, 1\)")]
)
def test_something_applied_after_the_head_is_caught_on_a_batch(after, said):
    model = nn.Sequential(nn.Linear(4, 3), after)
    inputs = torch.randn(2, 4)
    features_and_logits(model, inputs)
    with pytest.raises(ConfigError, match=said):
        features_and_logits(model, inputs, verify=True)


def test_a_head_run_twice_has_no_single_input():
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, inputs):
            return self.fc(inputs) - self.fc(-inputs)

    with pytest.raises(ConfigError, match="run 2 times"):
        features_and_logits(Siamese(), torch.randn(2, 4))


def test_the_hook_is_removed_also_after_an_error():
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, inputs):
            self.fc(inputs)
            raise RuntimeError("boom")

    model, fine = Fails(), nn.Linear(4, 3)
    with pytest.raises(RuntimeError, match="boom"):
        features_and_logits(model, torch.randn(2, 4))
    features_and_logits(fine, torch.randn(2, 4))
    assert not model.fc._forward_pre_hooks
    assert not fine._forward_pre_hooks


def test_gradients_flow_through_features_and_logits_of_one_pass():
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    features, logits = features_and_logits(model, torch.randn(2, 4), verify=True)
    (gradient,) = torch.autograd.grad(logits.sum(), features)
    torch.testing.assert_close(gradient, model[2].weight.sum(0).expand(2, 5))
    assert len(passes) == 1


def test_a_head_called_by_keyword_is_seen():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, inputs):
            return self.fc(input=inputs)

    inputs = torch.randn(2, 4)
    assert features_and_logits(Net(), inputs)[0] is inputs


def test_logits_are_a_tensor_an_attribute_or_an_entry():
    logits = torch.zeros(2, 3)
    assert logits_of(logits) is logits
    assert logits_of({"logits": logits, "loss": None}) is logits
    assert logits_of(SimpleNamespace(logits=logits, loss=None)) is logits
    with pytest.raises(ConfigError, match="returned a tuple"):
        logits_of((logits, logits))


def test_vit_of_transformers_works_by_keyword_and_by_position():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4
    )
    config.num_labels = 3
    model = transformers.ViTForImageClassification(config).eval()
    pixels = torch.randn(2, 3, 8, 8)
    features, logits = features_and_logits(model, {"pixel_values": pixels}, verify=True)
    assert find_head(model)[0] == "classifier"
    assert (features.shape, logits.shape) == ((2, 16), (2, 3))
    assert torch.equal(features_and_logits(model, pixels)[1], logits)


def test_text_classifiers_of_transformers_work():
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    bert = transformers.BertConfig(vocab_size=30, num_labels=3, **small)
    roberta = transformers.RobertaConfig(vocab_size=30, num_labels=3, **small)
    distil = transformers.DistilBertConfig(vocab_size=30, num_labels=3, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    batch = {"input_ids": torch.randint(2, 30, (2, 7)), "attention_mask": torch.ones(2, 7, dtype=torch.int64)}
    values = {}
    for model in (
        transformers.BertForSequenceClassification(bert),
        transformers.RobertaForSequenceClassification(roberta),
        transformers.DistilBertForSequenceClassification(distil),
    ):
        features, logits = features_and_logits(model, batch, verify=True)
        assert (features.shape, logits.shape) == ((2, 16), (2, 3))
        values[type(model).__name__] = find_head(model)[0]
    assert values == {
        "BertForSequenceClassification": "classifier",
        "RobertaForSequenceClassification": "classifier.out_proj",
        "DistilBertForSequenceClassification": "classifier",
    }
