"""Clients from arrays by name, and from a user's own table, texts and images."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from holdfast.cli.main import main
from holdfast.data import Clients, Examples, ReadingOptions
from holdfast.data.clients.own_clients import OwnClients
from holdfast.data.clients.partitioned import Partitioned
from holdfast.errors import DataError


def wards(sizes, words=("ill", "well")):
    rng = np.random.default_rng(0)
    return {
        f"ward-{k}": (rng.normal(size=(n, 3)).astype(np.float32) + 100 * k, [words[i % len(words)] for i in range(n)])
        for k, n in enumerate(sizes)
    }


@given(st.lists(st.integers(2, 60), min_size=1, max_size=6), st.integers(0, 5))
def test_each_client_keeps_its_own_rows_and_only_these(sizes, seed):
    data = wards(sizes)
    clients = Clients.of(data, seed=seed)
    assert clients.names == tuple(data) and clients.classes == 2
    for k, n in enumerate(sizes):
        rows = torch.cat([part.of(k)[0] for part in clients.parts.values()])
        assert sorted(rows[:, 0].tolist()) == sorted(data[f"ward-{k}"][0][:, 0].tolist())
        assert len(clients.test.of(k)[0]) == max(int(0.2 * n + 0.5), 1) and len(clients.train.of(k)[0]) >= 1


def test_labels_go_with_their_inputs():
    clients = Clients.of({"a": (torch.arange(40.0)[:, None], torch.arange(40) % 4), "b": (torch.ones(8, 1), [1] * 8)})
    inputs, labels = clients.train.of(0)
    assert torch.equal(inputs[:, 0].long() % 4, labels)
    assert clients.classes == 4


def test_words_are_the_same_classes_for_all_clients_and_may_be_given():
    data = {"a": (torch.zeros(4, 1), ["z"] * 4), "b": (torch.zeros(4, 1), ["m"] * 4)}
    assert Clients.of(data).train.labels.unique().tolist() == [0, 1]
    named = Clients.of(data, class_names=("a", "m", "z"))
    assert named.classes == 3 and named.train.of(0)[1].unique().tolist() == [2]


def test_examples_are_clients_too():
    clients = Clients.of({k: Examples.of(torch.randn(10, 2), torch.arange(10) % 2) for k in ("a", "b")})
    assert clients.train.counts.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "there are no clients"),
        ({"a": (torch.zeros(1, 2), [0])}, "'a' has fewer than two examples"),
        ({"a": (torch.zeros(4, 2), [0, 1, 0, 1]), "b": (torch.zeros(4, 3), [0, 1, 0, 1])}, "'b' .*one shape"),
        ({"a": (torch.zeros(4, 2), [0, 1])}, "'a' can't be used"),
        ({"a": (torch.zeros(2, 2), [0, 1]), "b": (torch.zeros(2, 2), ["x", "y"])}, "words as labels and some"),
        ({"a": (torch.zeros(4, 2), [0.5, 1, 0, 1])}, "quantity"),
        ({"a": torch.zeros(4, 2)}, "give \\(inputs, labels\\)"),
    ],
)
def test_wrong_data_is_named_with_its_client(data, message):
    with pytest.raises(DataError, match=message):
        Clients.of(data)


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n), "job": rng.choice(["cook", "smith"], n), "sex": rng.choice(["f", "m"], n),
            "outcome": rng.choice(["ill", "well"], n), "ward": rng.choice(["north", "south", "east"], n),
        }
    )  # fmt: skip
    frame.to_csv(tmp_path / "wards.csv", index=False)
    return frame, tmp_path / "wards.csv"


def test_a_column_says_whose_each_row_is(table):
    frame, path = table
    clients = OwnClients(str(path), ReadingOptions(label="outcome", client="ward", attribute=("sex",))).load(Path(), 0)
    assert clients.names == ("east", "north", "south")
    total = sum(part.counts for part in clients.parts.values())
    assert total.tolist() == frame.groupby("ward").size().tolist()
    assert clients.train.groups is not None and clients.schema.client == "ward"
    assert any("72/8/20" in note for note in clients.notes)


def test_rows_of_nobody_in_particular_are_dealt_out(table):
    _, path = table
    reading = ReadingOptions(label="outcome", attribute=("none",))
    clients = OwnClients(str(path), reading, Partitioned(partition="iid", clients=4, sizes="equal")).load(Path(), 1)
    assert len(clients) == 4 and any("dealt out to 4 clients" in note for note in clients.notes)


def test_texts_and_images_make_clients(tmp_path):
    texts = pd.DataFrame(
        {"text": ["good day " * 9, "bad night " * 9] * 12, "label": [1, 0] * 12, "who": ["a", "b", "b"] * 8}
    )
    texts.to_parquet(tmp_path / "t.parquet")
    read = OwnClients(str(tmp_path / "t.parquet"), ReadingOptions(client="who")).load(Path(), 0)
    assert read.input_shape == (256,) and not read.train.inputs.is_floating_point()
    rows = ["image,label,who"]
    for k in range(12):
        Image.fromarray(np.full((9, 9, 3), 20 * k, np.uint8)).save(tmp_path / f"{k}.png")
        rows.append(f"{k}.png,{'xy'[k % 2]},{'ab'[k // 6]}")
    (tmp_path / "images.csv").write_text("\n".join(rows))
    seen = OwnClients(str(tmp_path / "images.csv"), ReadingOptions(client="who")).load(Path(), 0)
    assert seen.input_shape == (3, 9, 9) and seen.names == ("a", "b") and seen.train.inputs.is_floating_point()


def test_a_federation_of_ones_own_table_runs_resumes_and_remembers_its_schema(table, monkeypatch, capsys):
    _, path = table
    monkeypatch.chdir(path.parent)
    command = [
        "federate",
        "--data",
        "wards.csv",
        "--label",
        "outcome",
        "--client",
        "ward",
        "--rounds",
        "2",
        "--cohort",
        "2",
    ]
    assert main([*command, "--out", "run"]) == 0
    assert "groups by 'outcome' x 'sex'" in " ".join(capsys.readouterr().out.split())
    assert Path("run/schema.json").exists() and Path("run/report.html").exists()
    assert f"data: {path}" in Path("run/config.yaml").read_text()
    Path("run/results.json").unlink()  # as if it had been killed before the end
    text = path.read_text()
    path.write_text(text.replace(",cook,", ",monk,"))
    assert main(["federate", "--resume", "run"]) == 2
    assert "data has changed" in capsys.readouterr().err
    path.write_text(text)
    assert main(["federate", "--resume", "run"]) == 0


def test_a_wrong_column_is_a_sentence_before_a_run_is_made(table, monkeypatch, capsys):
    _, path = table
    monkeypatch.chdir(path.parent)
    assert main(["federate", "--data", "wards.csv", "--label", "outcome", "--client", "wart", "--out", "run"]) == 2
    assert "no column 'wart'; did you mean 'ward'?" in capsys.readouterr().err
    assert not Path("run").exists()
