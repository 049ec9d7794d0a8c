"""Sentences for what is of another kind, in every public function that a program calls."""

import pytest
import torch

import holdfast
from holdfast.errors import ConfigError, expect_kind
from holdfast.federated import Ditto, Median, ModelReplacement
from holdfast.spurious import GroupBalanced


class Apple:
    """Something that nobody asked for."""


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("red", "fruit must be a dict, such as {}, and is the text 'red'; write pick('red')"),
        (dict, "fruit must be a dict, such as {}, and is the class dict; write dict(...), which makes one"),
        (int, "fruit must be a dict, such as {}, and is a type"),
        (Apple(), "fruit must be a dict, such as {}, and is an Apple"),
        (None, "fruit must be a dict, such as {}, and is a NoneType"),
    ],
)
def test_the_sentence_says_what_was_given(value, sentence):
    with pytest.raises(ConfigError) as caught:
        expect_kind("fruit", value, dict, "a dict, such as {}", "pick({!r})")
    assert str(caught.value) == sentence
    expect_kind("fruit", {}, dict, "a dict, such as {}")


@pytest.fixture(scope="module")
def splits():
    return holdfast.data.load("coloured-digits")


@pytest.fixture(scope="module")
def clients():
    return holdfast.data.load_federation("digits-clients")


def _network(data):
    return holdfast.models.build("softmax", data.input_shape, 10)


@pytest.mark.parametrize(
    ("argument", "value", "given"),
    [
        ("aggregator", "median", "the text 'median'; write build_aggregator('median')"),
        ("aggregator", Median, "the class Median"),
        ("objective", "term", "the text 'term'"),
        ("threat", "a3", "the text 'a3'"),
        ("threat", ModelReplacement(), "a ModelReplacement"),
        ("personalize", Ditto(), "a Ditto"),
        ("personalize", "ditto", "the text 'ditto'"),
        ("a member of personalize", ["ditto"], "the text 'ditto'"),
        ("a member of personalize", [Ditto], "the class Ditto"),
        ("server_optimizer", "fedadam", "the text 'fedadam'"),
        ("privacy", 1.0, "a float"),
    ],
)
def test_a_federation_names_the_method_that_is_none(clients, argument, value, given):
    keyword = argument.rpartition(" ")[2]
    with pytest.raises(ConfigError, match=rf"^{argument} must be .* and is ") as caught:
        holdfast.federate(clients, _network(clients), holdfast.Rounds(rounds=1), **{keyword: value})
    assert given in str(caught.value)


def test_a_federation_wants_clients_a_network_and_rounds(clients, splits):
    for arguments, sentence in (
        ((splits.train, _network(clients)), "clients must be .* and is an Examples"),
        (("wards.csv", _network(clients)), "clients must be .* is the text 'wards.csv'; write holdfast.data.load_fed"),
        ((clients, "softmax"), "model must be a torch module, and is the text 'softmax'; write holdfast.models.build"),
        ((clients, _network(clients), 5), "settings must be Rounds, .* and is an int"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            holdfast.federate(*arguments)


def test_training_names_what_is_of_another_kind(splits):
    network = holdfast.models.build("mlp", splits.train.input_shape, 2)
    for arguments, sentence in (
        ((splits, network), "model must be a torch module, and is a Splits"),
        ((network, splits.train), "splits must be three sets of examples, .* and is an Examples"),
        ((network, splits, "spare"), r"method must be .* write holdfast.build_method\('spare'\)"),
        ((network, splits, GroupBalanced), "method must be .* is the class GroupBalanced"),
        ((network, splits, None, 20), "settings must be a Training, .* and is an int"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            holdfast.fit(*arguments)
    with pytest.raises(ConfigError, match=r"policy must be a policy, such as .* is the class GroupBalanced"):
        holdfast.Curator(splits.train, GroupBalanced)
    with pytest.raises(ConfigError, match=r"policy must be .* write holdfast.build_method\('jtt'\).policy"):
        holdfast.Curator(splits.train, "jtt")
    with pytest.raises(ConfigError, match=r"examples must be Examples, .* and is a Tensor"):
        holdfast.Curator(torch.zeros(3, 2))
    with pytest.raises(ConfigError, match="model must be a torch module, and is an Examples"):
        holdfast.evaluate(splits.test, network)
    with pytest.raises(ConfigError, match=r"examples must be Examples, .* and is a Splits"):
        holdfast.evaluate(network, splits)
