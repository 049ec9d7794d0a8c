"""A run's page shows what examples say: texts, rows of the user's table, and the names of files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from holdfast.cli.main import main
from holdfast.data import Examples
from holdfast.report.html.images import example_sheet
from holdfast.training import GroupReport
from tests.report.reading import read_page


def test_texts_and_rows_of_a_users_table_are_shown_with_their_ids(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 90)
    texts = [f"<b>row {row}</b> {'good' if label else 'bad'}" for row, label in enumerate(y)]
    pq.write_table(pa.table({"text": texts, "y": y}), "texts.parquet")
    pq.write_table(pa.table({"size": rng.normal(size=90) + y, "colour": rng.choice(["red", "blue"], 90), "y": y}),
                   "rows.parquet")  # fmt: skip
    for name, text in (("texts", "row"), ("rows", "size=")):
        assert main(["fit", "--data", f"{name}.parquet", "--label", "y", "--epochs", "1", "--out", name]) == 0
        sheet = read_page((tmp_path / name / "report.html").read_text()).one("section", id="examples")
        items = sheet.all("li")
        assert items and all(text in item.text for item in items)
        for item in items:
            number = int(item.all("p")[-1].text.rpartition("id ")[2])
            if name == "texts":
                assert texts[number] in item.text
            else:
                assert f"colour={pq.read_table('rows.parquet')['colour'][number].as_py()}" in item.text


def test_images_are_shown_with_the_names_of_their_files():
    test = Examples.of(
        torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1]), class_names=["cat", "dog"],
        names=["a/1.png", "a/2.png", "b/3.png", "b/4.png"],
    )  # fmt: skip
    predicted = torch.tensor([0, 0, 0, 0])
    columns = {"id": test.ids, "label": test.labels, "predicted": predicted, "confidence": torch.rand(4)}
    page = example_sheet(GroupReport.of(predicted, test), {k: v.numpy() for k, v in columns.items()}, test)
    assert {item.all("p")[-1].text.split(", ", 1)[1] for item in read_page(page).all("li")} == {
        "a/2.png, id 1", "b/4.png, id 3",
    }  # fmt: skip
