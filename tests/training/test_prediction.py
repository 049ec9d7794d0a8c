import csv

import hypothesis.strategies as st
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from torch import nn

from holdfast.data import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.training.model_card import InputFacts, ModelCard
from holdfast.training.prediction import PredictionData, class_scores, fitting_examples, of_client, report_of
from holdfast.training.prediction_table import check_table_place, prediction_table, write_table

FOUR = (InputFacts("", "float32", (4,)),)


def examples(n=20, classes=3, **options):
    generator = torch.Generator().manual_seed(n)
    labels = torch.arange(n) % classes
    names = options.pop("class_names", [f"c{place}" for place in range(classes)])
    return Examples.of(torch.randn(n, 4, generator=generator), labels, class_names=names, **options)


def linear(outputs=3):
    model = nn.Linear(4, outputs)
    with torch.no_grad():
        model.weight.copy_(torch.arange(4.0 * outputs).view(outputs, 4).sin())
    return model


def softmax(logits):
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


@given(n=st.integers(1, 30), batch_size=st.integers(1, 40))
def test_probabilities_are_the_softmax_of_the_outputs_whatever_the_batch_size(n, batch_size):
    model, data = linear(), examples(n)
    scores = class_scores(model, data, batch_size=batch_size)
    inputs = data.inputs.gather(torch.arange(n)).double().numpy()
    expected = softmax(inputs @ model.weight.detach().double().numpy().T + model.bias.detach().double().numpy())
    np.testing.assert_allclose(scores.scores.numpy(), expected, atol=1e-6)
    assert scores.predicted.tolist() == expected.argmax(1).tolist()


def test_the_table_has_a_row_per_example_by_id_with_label_group_and_a_column_per_class(tmp_path):
    data = examples(7, attributes=torch.arange(7) % 2, ids=torch.arange(7) * 11)
    asked = PredictionData(data, names=[f"{place}.png" for place in range(7)])
    scores = class_scores(linear(), data)
    write_table(prediction_table(scores, asked, data.class_names), tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet").to_pydict()
    assert list(table) == ["id", "name", "label", "group", "predicted", "p_c0", "p_c1", "p_c2"]
    assert table["id"] == [0, 11, 22, 33, 44, 55, 66]
    assert table["label"][:3] == ["c0", "c1", "c2"] and table["group"][1] == "c1/a1"
    assert table["predicted"] == [f"c{place}" for place in scores.predicted.tolist()]
    assert table["p_c1"] == pytest.approx(scores.scores[:, 1].tolist())
    write_table(prediction_table(scores, asked, data.class_names), tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == table["name"] and [row["group"] for row in rows] == table["group"]


def test_without_labels_there_is_no_report_and_no_column_for_them():
    data = PredictionData(examples(5), labelled=False)
    scores = class_scores(linear(), data.examples)
    assert report_of(scores, data) is None
    assert prediction_table(scores, data, ("a", "b", "c")).column_names == ["id", "predicted", "p_a", "p_b", "p_c"]


def test_overlapping_groups_are_a_list_and_joined_in_a_csv(tmp_path):
    member = torch.tensor([[True, True], [False, True], [False, False]])
    data = PredictionData(examples(3, memberships=member, group_names=["old", "loud"]))
    table = prediction_table(class_scores(linear(), data.examples), data, data.examples.class_names)
    assert table.column("group").to_pylist() == [["old", "loud"], ["loud"], []]
    write_table(table, tmp_path / "p.csv")
    assert '"old;loud"' in (tmp_path / "p.csv").read_text()


def test_of_many_classes_the_most_likely_are_kept():
    data = examples(6, classes=3)
    model = linear(120)
    some, every = class_scores(model, data, top=5), class_scores(model, data)
    table = prediction_table(some, PredictionData(data, labelled=False), [str(place) for place in range(120)])
    assert table.column_names[:4] == ["id", "predicted", "top_1", "p_top_1"] and table.num_columns == 12
    ranked = every.scores.argsort(1, descending=True)[:, 2].tolist()
    assert table.column("top_3").to_pylist() == [str(place) for place in ranked]
    assert table.column("top_1").to_pylist() == table.column("predicted").to_pylist()


def test_a_margin_predicts_the_second_class_where_it_is_positive():
    data = examples(9, classes=2)
    model = linear(1)
    scores = class_scores(model, data, task="margin")
    with torch.no_grad():
        outputs = model(data.inputs.gather(torch.arange(9)))[:, 0]
    table = prediction_table(scores, PredictionData(data), ("no", "yes"))
    assert table.column_names == ["id", "label", "predicted", "margin"]
    assert [word == "yes" for word in table.column("predicted").to_pylist()] == (
        table["margin"].to_numpy() > 0
    ).tolist()
    assert table["margin"].to_pylist() == pytest.approx(outputs.tolist())


def test_two_classes_of_one_name_get_columns_by_number():
    data = PredictionData(examples(3), labelled=False)
    table = prediction_table(class_scores(linear(), data.examples), data, ("same", "same", "other"))
    assert table.column_names[2:] == ["p_0", "p_1", "p_2"]


def test_classes_in_another_order_are_matched_by_name():
    card = ModelCard(FOUR, ("c2", "c0", "c1"))
    fitted = fitting_examples(PredictionData(examples(6)), card, 3).examples
    assert [fitted.class_names[label] for label in fitted.labels.tolist()] == ["c0", "c1", "c2"] * 2
    assert fitted.class_names == card.classes


def test_a_class_that_only_has_a_name_does_no_harm_and_one_with_examples_is_refused():
    card = ModelCard(FOUR, ("c0", "c1", "c2"))
    named = examples(6, class_names=["c0", "c1", "c2", "never"])
    assert fitting_examples(PredictionData(named), card, 3).examples.class_names == card.classes
    with pytest.raises(DataError, match="doesn't know: 'c3'; it knows 'c0'"):
        fitting_examples(PredictionData(examples(6, classes=4)), card, 3)
    with pytest.raises(DataError, match="doesn't know: 'c2'"):
        fitting_examples(PredictionData(examples(6)), ModelCard(FOUR), 2)
    fitting_examples(PredictionData(examples(6, classes=4), labelled=False), card, 3)


def test_inputs_of_another_shape_and_no_examples_at_all_are_refused():
    with pytest.raises(DataError, match=r"shape \(4,\) and the model takes \(5,\)"):
        fitting_examples(PredictionData(examples(6)), ModelCard((InputFacts("", "float32", (5,)),)), 3)
    with pytest.raises(DataError, match="no examples"):
        fitting_examples(PredictionData(examples(6).subset([])), ModelCard(FOUR), 3)


def test_outputs_that_are_no_numbers_are_named_by_id():
    broken = examples(4, ids=[10, 11, 12, 13])
    broken.inputs.values[2] = torch.inf
    with pytest.raises(DataError, match="not finite for 1 of 4 examples, ids 12"):
        class_scores(linear(), broken)


def test_of_a_client_only_its_examples_are_left():
    data = PredictionData(examples(4, ids=[5, 6, 7, 8]), clients=["a", "b", "a", "c"], names=list("wxyz"))
    own = of_client(data, "a")
    assert own.examples.ids.tolist() == [5, 7] and own.names == ["w", "y"] and own.clients == ["a", "a"]
    with pytest.raises(DataError, match="'d' has no examples"):
        of_client(data, "d")


def test_a_place_is_refused_before_work_is_done(tmp_path):
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(ConfigError, match="already; choose another --out, or say --overwrite"):
        check_table_place(tmp_path / "there.csv", overwrite=False)
    check_table_place(tmp_path / "there.csv", overwrite=True)
    with pytest.raises(ConfigError, match=r"written as \.parquet or \.csv"):
        check_table_place(tmp_path / "p.xlsx", overwrite=False)
    with pytest.raises(ConfigError, match="can't be made"):
        check_table_place(tmp_path / "there.csv" / "p.csv", overwrite=False)
