"""A command reads its data once: what was read to say how to train is what is trained on."""

import os
import textwrap

import pytest

from holdfast.cli.main import main
from holdfast.data import OwnData, ReadingOptions
from holdfast.data.clients.own_clients import OwnClients
from holdfast.data.own import handed_on, reading
from tests.data.own.wards import wards, write_csv


@pytest.fixture
def places_read(monkeypatch):
    """Places that are read in full."""
    places = []

    def counted(place, *, sample=False, read_place=reading.read_place):
        places.extend([] if sample else [place])
        return read_place(place, sample=sample)

    monkeypatch.setattr(reading, "read_place", counted)
    return places


def test_a_table_is_read_once_to_count_its_clients_and_to_train_on(tmp_path, places_read):
    path = str(write_csv(tmp_path / "wards.csv", wards()))
    federation = OwnClients(path, ReadingOptions(client="ward"))
    assert federation.recipe.cohort == 3 and len(federation.load(tmp_path)) == 3
    assert places_read == [path]
    federation.load(tmp_path)  # nothing is held for a second one
    assert places_read == [path, path]


def test_a_file_that_was_written_since_is_read_again(tmp_path, places_read):
    path = write_csv(tmp_path / "wards.csv", wards())
    federation = OwnClients(str(path), ReadingOptions(client="ward"))
    assert federation.recipe.cohort == 3
    write_csv(path, {**wards(), "ward": ["north", "south"] * 30})
    os.utime(path, ns=(0, 0))
    assert len(federation.load(tmp_path)) == 2 and len(places_read) == 2


def test_only_the_last_thing_is_held_and_only_once():
    handed_on.hand_on("a:b", [1])
    handed_on.hand_on("c:d", [2])
    assert handed_on.take("a:b") is None and handed_on.take("c:d") == [2] and handed_on.take("c:d") is None


def test_a_function_of_ones_own_is_called_once_by_a_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "counted_data.py").write_text(
        textwrap.dedent(
            """
            from pathlib import Path
            import torch
            from holdfast import Examples

            def make():
                with Path("calls").open("a") as calls:
                    calls.write("called ")
                return Examples.of(torch.randn(40, 3), torch.arange(40) % 2)
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["fit", "--data", "counted_data:make", "--epochs", "1", "--out", "run"]) == 0, capsys.readouterr()
    assert (tmp_path / "calls").read_text() == "called "
    OwnData("counted_data:make").load(tmp_path)
    assert (tmp_path / "calls").read_text() == "called called "
