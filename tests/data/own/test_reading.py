import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data import read
from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.parts import stratified
from holdfast.data.own.reading import read_rows, recipe_for
from holdfast.data.own.schema import Schema
from holdfast.errors import CheckpointError, ConfigError, DataError, HoldfastError
from tests.data.own.wards import wards, write_csv
from tests.soak.test_readers import twisted


@pytest.fixture
def table(tmp_path):
    return write_csv(tmp_path / "wards.csv", wards())


def test_a_table_is_read_without_a_word_and_what_was_guessed_is_told(table):
    splits = read(table)
    assert splits.name == "wards" and splits.train.class_names == ("died", "lived")
    assert splits.train.group_names == ("died/sex=f", "died/sex=m", "lived/sex=f", "lived/sex=m")
    assert sum(map(len, (splits.train, splits.validation, splits.test))) == 60
    assert (
        "label: column 'label', by its name" in splits.notes and "attribute: column 'sex', by its name" in splits.notes
    )
    ids = torch.cat([part.ids for part in (splits.train, splits.validation, splits.test)])
    assert sorted(ids.tolist()) == list(range(60))


def test_a_split_drawn_beside_the_coding_is_the_one_of_its_seed(table):
    rows = read_rows(str(table), ReadingOptions(split_seed=3))
    groups = rows.examples.groups
    assert rows.parts.tolist() == stratified(groups.numpy(), (0.15, 0.15), 3).tolist()
    assert rows.parts.tolist() != stratified(groups.numpy(), (0.15, 0.15), 0).tolist()


def test_labels_and_groups_are_those_of_the_rows(table):
    rows, splits = wards(), read(table)
    for part in (splits.train, splits.validation, splits.test):
        for position, row in enumerate(part.ids.tolist()):
            label, sex = rows["label"][row], rows["sex"][row]
            assert part.class_names[part.labels[position]] == label
            assert part.group_names[part.groups[position]] == f"{label}/sex={sex}"


def test_the_same_file_and_seed_give_the_same_split_and_another_seed_another(table):
    one, same, other = read(table), read(table), read(table, split_seed=1)
    assert torch.equal(one.test.ids, same.test.ids) and not torch.equal(one.test.ids, other.test.ids)


def test_several_attributes_make_the_product_and_a_number_is_cut(tmp_path):
    splits = read(write_csv(tmp_path / "t.csv", wards(200)), attribute=["sex", "age:2"])
    sexes = [name.partition("/")[2].partition(" & ")[0] for name in splits.train.group_names]
    assert splits.train.n_groups == 2 * 2 * 2 and set(sexes) == {"sex=f", "sex=m"}
    assert "& age=" in splits.train.group_names[0]


def test_a_column_of_lists_makes_groups_that_overlap(tmp_path):
    rows = wards(80)
    tags = [[["smoker"], ["old", "smoker"], []][i % 3] for i in range(80)]
    pq.write_table(pa.table({**rows, "tags": pa.array(tags, pa.list_(pa.string()))}), tmp_path / "t.parquet")
    train = read(tmp_path / "t.parquet", attribute="tags", id="none").train
    assert train.group_names == tuple(f"{y}/tags={t}" for y in ("died", "lived") for t in ("old", "smoker"))
    for position, row in enumerate(train.ids.tolist()):
        here = {train.group_names[g] for g in np.flatnonzero(train.memberships[position])}
        assert here == {f"{rows['label'][row]}/tags={tag}" for tag in tags[row]}
    with pytest.raises(DataError, match="can't be crossed with other attributes"):
        read(tmp_path / "t.parquet", attribute=["tags", "sex"])


def test_a_split_by_time_has_the_newest_in_the_test(tmp_path):
    rows = {**wards(100), "when": [f"2026-01-{1 + i % 28:02}" for i in range(100)]}
    splits = read(write_csv(tmp_path / "t.csv", rows), time="when", features=["age", "beds"])
    newest = [
        max(rows["when"][i] for i in part.ids.tolist()) for part in (splits.train, splits.validation, splits.test)
    ]
    oldest = [
        min(rows["when"][i] for i in part.ids.tolist()) for part in (splits.train, splits.validation, splits.test)
    ]
    assert newest[0] < oldest[1] and newest[1] < oldest[2]


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({"label": None}, {}, "no column that is called label"),
        ({}, {"label": "lable"}, "no column 'lable'; did you mean 'label'"),
        ({}, {"label": ""}, "no column ''"),
        ({}, {"label": "age"}, "quantity and not a class"),
        ({}, {"attribute": ["age"]}, "holds fractions; cut it at its quantiles"),
        ({}, {"attribute": ["sex:4"]}, "not numbers"),
        ({}, {"split": "sex"}, "isn.t a part of the data"),
        ({}, {"text": "age"}, "not texts"),
        ({}, {"image": "ward"}, "can't be used"),
        ({}, {"client": "nobody"}, "no column 'nobody'"),
        ({}, {"time": "ward"}, "can't be read"),
        ({"label": ["a"] * 60}, {}, "one value only"),
        ({"label": [""] * 60}, {}, "no label"),
        ({"age": ["inf"] * 60}, {}, "infinite number in column 'age'"),
        ({"split": ["train"] * 59 + ["holdout"]}, {"split": "split"}, "'holdout' in column 'split' of row 60"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_training(tmp_path, change, options, says):
    rows = {name: values for name, values in {**wards(), **change}.items() if values is not None}
    with pytest.raises(DataError, match=says) as raised:
        read(write_csv(tmp_path / "t.csv", rows), **options)
    assert len(str(raised.value).replace(str(tmp_path), "")) < 600  # without the folder, which may be deep


def test_a_class_that_training_lacks_is_refused_and_one_that_others_lack_is_told(tmp_path):
    rows = wards(60)
    rows["split"] = ["test" if y == "died" else "train" for y in rows["label"]]
    with pytest.raises(DataError, match="no training row of the class died; move some of its rows to training"):
        read(write_csv(tmp_path / "t.csv", rows))
    rows["split"] = ["val" if y == "lived" and i % 2 else "test" if i % 3 == 0 else "train"
                     for i, y in enumerate(rows["label"])]  # fmt: skip
    notes = read(write_csv(tmp_path / "t.csv", rows)).notes
    assert "warning: the validation set has no example of the class died" in notes


def test_an_empty_cell_of_class_and_attribute_is_told(tmp_path):
    rows = wards(60)
    rows["sex"] = ["f" if y == "died" else x for y, x in zip(rows["label"], rows["sex"], strict=True)]
    notes = read(write_csv(tmp_path / "t.csv", rows)).notes
    assert any("no training example of the group died/sex=m" in note for note in notes)


def test_a_label_with_gaps_makes_as_many_classes_as_occur(tmp_path):
    rows = {**wards(60), "label": [[0, 1, 1000][i % 3] for i in range(60)]}
    assert read(write_csv(tmp_path / "t.csv", rows)).train.class_names == ("0", "1", "1000")


def test_a_guess_never_makes_data_unreadable(tmp_path):
    """A column called `a` is an attribute in Waterbirds' metadata, and a number in most tables."""
    rows = {**wards(), "a": wards()["age"], "fold": wards()["ward"]}
    del rows["sex"]
    splits = read(write_csv(tmp_path / "t.csv", rows))
    assert splits.train.groups is None and splits.train.input_shape == (1 + 1 + 1 + 4 + 4,)


def test_other_data_is_read_as_the_schema_says_to_the_bit(tmp_path):
    rows = wards(90)
    rows["age"] = [None if i % 7 == 0 else age for i, age in enumerate(rows["age"])]
    pq.write_table(pa.table(rows), tmp_path / "train.parquet")
    schema = read(tmp_path / "train.parquet").schema
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    other = wards(30, seed=1)
    other["ward"][0] = "unheard of"
    del other["label"]
    pq.write_table(pa.table(other), tmp_path / "other.parquet")
    one, two = schema.read(str(tmp_path / "other.parquet")), again.read(str(tmp_path / "other.parquet"))
    assert not one.labelled and len(one.examples) == 30
    assert torch.equal(one.examples.gather(torch.arange(30))[0], two.examples.gather(torch.arange(30))[0])


@given(st.data())
def test_a_schema_with_other_values_is_used_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "twisted"
    folder.mkdir(exist_ok=True)
    table = write_csv(folder / "t.csv", wards())
    tree = data.draw(twisted(json.loads(json.dumps(read(table).schema.to_json()))))
    (folder / "schema.json").write_text(json.dumps(tree))
    try:
        examples = Schema.load(folder / "schema.json").read(str(table)).examples
        assert torch.isfinite(examples.gather(torch.arange(3))[0]).all()
    except HoldfastError as error:
        assert len(str(error)) <= 1_200


def test_a_schema_that_is_none_is_a_sentence(tmp_path):
    for content in ("", "[]", "{}", "null", '{"format": "holdfast-schema-1"}', "[" * 100_000):
        (tmp_path / "schema.json").write_text(content)
        with pytest.raises(CheckpointError):
            Schema.load(tmp_path / "schema.json")
    with pytest.raises(CheckpointError, match="can't be read"):
        Schema.load(tmp_path / "nowhere.json")


def test_an_unknown_option_offers_the_nearest(table):
    with pytest.raises(ConfigError, match="reading data has no option 'lable'; did you mean 'label'"):
        read(table, lable="label")


def test_the_recipe_suits_what_the_inputs_are(table, tmp_path):
    assert recipe_for(str(table), ReadingOptions())["model"] == "mlp"
    texts = {
        "review": [f"a film of some length, number {i}, which I liked" for i in range(20)],
        "label": list("ab") * 10,
    }
    pq.write_table(pa.table(texts), tmp_path / "t.parquet")
    assert recipe_for(str(tmp_path / "t.parquet"), ReadingOptions())["model"] == "text-bag"


def test_places_that_are_none_are_sentences(tmp_path):
    (tmp_path / "data.pkl").write_bytes(b"x")
    (tmp_path / "data.xlsx").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    for place, says in (
        ("data.pkl", "a pickle can run code"), ("data.xlsx", "save the sheet as csv"),
        ("nowhere", "there is nothing at"),
        ("empty", "neither images nor tables .it has nothing."), ("x" * 5_000, "there can be nothing at"),
        ("a\0b", "there can be nothing at|there is nothing at"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=says) as raised:
            read(tmp_path / place)
        assert len(str(raised.value)) <= 1_200


def test_a_client_column_of_bytes_is_refused(tmp_path):
    pq.write_table(pa.table({**wards(), "who": [b"\xff"] * 60}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="has rows without a client in column 'who'"):
        read(tmp_path / "t.parquet", client="who")
