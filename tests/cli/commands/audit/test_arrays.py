"""`holdfast audit arrays`: every form of file, a page, a line per example, and sentences for what can't be read."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast.cli.main import main
from tests.auditing.test_arrays import planted


@pytest.fixture
def files(somewhere_else):
    labels, p, features, wrong = planted()
    np.save("labels.npy", labels)
    np.savez("outputs.npz", y=labels, probabilities=p)
    words = ["ham" if label == 0 else "spam" for label in labels]
    Path("labels.csv").write_text("id,label\n" + "\n".join(f"{i},{word}" for i, word in enumerate(words)))
    pq.write_table(pa.table({"id": range(len(p)), "spam": p[:, 1], "ham": p[:, 0]}), "p.parquet")
    np.save("p.npy", p)
    flat = pa.array(features.reshape(-1))
    pq.write_table(pa.table({"embedding": pa.FixedSizeListArray.from_arrays(flat, 16)}), "features.parquet")
    return wrong


def _lines(folder: str) -> list[dict[str, str]]:
    return list(csv.DictReader((Path(folder) / "examples.csv").read_text().splitlines()))


def test_words_and_named_columns_give_what_numbers_and_arrays_give(files, capsys):
    assert main(["audit", "arrays", "--labels", "labels.npy", "--probabilities", "p.npy", "--out", "one"]) == 0
    words = ["--labels", "labels.csv", "--probabilities", "p.parquet", "--features", "features.parquet"]
    assert main(["audit", "arrays", *words, "--out", "two"]) == 0
    npz = ["--labels", "outputs.npz:y", "--probabilities", "outputs.npz"]
    assert main(["audit", "arrays", *npz, "--out", "three"]) == 0
    one, two, three = _lines("one"), _lines("two"), _lines("three")
    assert one == three
    assert [line["self_confidence"] for line in one] == [line["self_confidence"] for line in two]
    assert {line["label"] for line in two} == {"ham", "spam"}
    assert [line["row"] for line in two if line["has_a_copy"] == "true"] == ["400", "500"]
    said = capsys.readouterr().out
    assert "1 set of near duplicates" in said
    assert "can be told from the examples of spam" in said
    assert "look before you delete" in Path("two/audit.html").read_text()


def test_in_python_a_page_is_written_where_it_is_asked_for(somewhere_else):
    labels, p, features, _ = planted()
    found = holdfast.audit(labels, p, features)
    assert not list(Path().iterdir())
    again = holdfast.audit(labels, p, features, out="page")
    assert sorted(path.name for path in Path("page").iterdir()) == ["audit.html", "examples.csv"]
    assert again.quality.order.tolist() == found.quality.order.tolist()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--labels", "labels.npy"], "there are labels only"),
        (["--labels", "nowhere.npy", "--features", "p.npy"], "there is no file nowhere.npy"),
        (["--labels", "outputs.npz", "--probabilities", "outputs.npz:probs"], "did you mean"),
        (["--labels", "labels.npy:y", "--features", "p.npy"], "holds one array"),
        (["--labels", "labels.npy", "--features", "labels.csv:label"], "features are of type object"),
        (["--labels", "labels.npy", "--features", "p.npy", "--neighbours", "0"], "--neighbours is 0"),
        (["--labels", "odd.npy", "--features", "p.npy"], "isn't an npy file"),
        (["--labels", "objects.npy", "--features", "p.npy"], "isn't an npy file"),
        (["--labels", "page.html", "--features", "p.npy"], "isn't a .npy, .npz, .csv"),
    ],
)
def test_what_cannot_be_read_is_a_sentence_and_leaves_nothing(files, capsys, arguments, said):
    Path("odd.npy").write_bytes(b"nothing")
    Path("page.html").write_text("nothing")
    np.save("objects.npy", np.array([{}, []], object), allow_pickle=True)
    assert main(["audit", "arrays", *arguments, "--out", "page"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("page").exists()
