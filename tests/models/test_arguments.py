import pytest
from torch import nn

from holdfast.errors import ConfigError
from holdfast.models.arguments import call_of, written

IMAGE = (3, 8, 6)


def filled(function, given=None, shape=IMAGE):
    return call_of(function, given or {}, shape, 5, title="it").filled


def test_usual_names_get_what_the_data_say():
    def f(input_shape, num_classes, in_channels, in_features): ...

    assert filled(f) == {"input_shape": IMAGE, "num_classes": 5, "in_channels": 3, "in_features": 144}


def test_clear_names_are_filled_over_their_default_and_others_only_where_they_must_be_given():
    def f(n_classes=1000, channels=64, out_features=7): ...
    def g(channels, image_size, out_features): ...

    assert filled(f) == {"n_classes": 5}
    assert filled(g) == {"channels": 3, "image_size": (8, 6), "out_features": 5}
    assert filled(g, shape=(1, 9, 9)) == {"channels": 1, "image_size": 9, "out_features": 5}


def test_channels_of_what_is_no_image_must_be_given():
    def f(in_channels, depth=1): ...

    with pytest.raises(ConfigError, match="it must be told 'in_channels'; add it with --model-args in_channels=VALUE"):
        filled(f, shape=(12,))


def test_given_arguments_are_passed_as_they_are_and_win():
    call = call_of(lambda n_classes, hidden: (n_classes, hidden), {"n_classes": 9, "hidden": [1]}, IMAGE, 5, title="it")
    assert call() == (9, [1])
    assert call.filled == {}


def test_parameters_without_a_keyword_are_passed_by_position():
    def f(n_classes, hidden=3, /, depth=1):
        return n_classes, hidden, depth

    assert call_of(f, {"depth": 2}, IMAGE, 5, title="it")() == (5, 3, 2)
    assert call_of(f, {"hidden": 4}, IMAGE, 5, title="it")() == (5, 4, 1)


def test_a_function_of_any_keywords_gets_what_is_given_and_nothing_else():
    assert call_of(lambda **options: options, {"a": 1}, IMAGE, 5, title="it")() == {"a": 1}


def test_annotations_that_cannot_be_resolved_do_no_harm():
    def f(n_classes: "Nothing", x: "Never" = 1):  # noqa: F821
        return n_classes

    assert call_of(f, {}, IMAGE, 5, title="it")() == 5


def test_a_class_is_called_by_its_constructor():
    layer = call_of(nn.Linear, {"bias": False}, (4,), 5, title="it")()
    assert (layer.in_features, layer.out_features, layer.bias) == (4, 5, None)


def test_inputs_and_outputs_are_counted_from_the_data_and_what_is_not_known_says_which_names_are():
    def net(inputs, outputs, width=12):
        return inputs, outputs, width

    def unknown(wards): ...

    assert call_of(net, {}, (2, 3), 5, title="it")() == (6, 5, 12)
    with pytest.raises(ConfigError, match="n_features or n_classes is taken from the data"):
        call_of(unknown, {}, (2, 3), 5, title="it")


def test_a_field_that_is_missing_inside_a_dataclass_is_named_with_its_place():
    from dataclasses import dataclass

    @dataclass
    class Inner:
        depth: int

    @dataclass
    class Config:
        inner: Inner

    def f(config): ...

    f.__annotations__["config"] = Config
    Config.__annotations__["inner"] = Inner
    with pytest.raises(
        ConfigError, match=r"must be told 'depth'; add it with --model-args 'config=\{inner: \{depth: V"
    ):
        filled(f)


def test_arguments_are_written_as_in_a_call():
    assert written({"a": 1, "b": "x"}) == "a=1, b='x'"
    assert written({}) == "no arguments"
