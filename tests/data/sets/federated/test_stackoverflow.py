import json
import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.data import load_federation
from holdfast.data.sets.federated.stackoverflow import TAGS, WORDS, encode, read_tags, read_words
from holdfast.errors import DataError, MissingDependencyError
from holdfast.models.networks.federated_linear import VOCABULARY

POSTS = [
    ("u2", "w1 w0 zzz", "w3", "t9|t4"),
    ("u2", "w5", "", "t499"),
    ("u1", "w2 w2", "w2", "t0"),
    ("u1", "w0", "w1", "unknown|t3"),
    ("u1", "w0", "w1", "unknown"),
    ("u1", "w9999", "w7 w8", "t2"),
    ("u3", "w1", "w1", "unknown"),
    ("u3", "w1", "w1", "t1"),
]


def vocabularies(root: Path) -> Path:
    folder = root / "stackoverflow"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stackoverflow.word_count").write_text("".join(f"w{i} {20_000 - i}\n" for i in range(WORDS + 50)))
    (folder / "stackoverflow.tag_count").write_text(json.dumps({f"t{i}": 9000 - i for i in range(TAGS + 5)}))
    return root


def parquet(root: Path, posts=POSTS, columns=("user", "tokens", "title", "tags")) -> Path:
    vocabularies(root)
    table = pa.table({column: [post[i] for post in posts] for i, column in enumerate(columns)})
    pq.write_table(table, root / "stackoverflow" / "train.parquet")
    return root


def rows(clients) -> set[tuple[int, ...]]:
    parts = (clients.train, clients.validation, clients.test)
    return {tuple(row) for part in parts for row in np.column_stack([part.labels, part.inputs]).tolist()}


def test_posts_become_ranks_of_words_and_the_most_frequent_known_tag(tmp_path: Path, caplog) -> None:
    with caplog.at_level(logging.INFO, "holdfast"):
        clients = load_federation("stackoverflow", parquet(tmp_path))
    assert clients.names == ("u1", "u2") and clients.classes == 500
    assert clients.train.inputs.dtype == clients.test.inputs.dtype and str(clients.train.inputs.dtype) == "torch.int16"
    oov, pad = WORDS, -1
    assert rows(clients) == {
        (4, 1, 0, oov, 3),
        (499, 5, pad, pad, pad),
        (0, 2, 2, 2, pad),
        (3, 0, 1, pad, pad),
        (2, 9999, 7, 8, pad),
    }
    assert "2 posts with none of the 500 tags were dropped, and 1 users with too few left" in caplog.text
    assert load_federation("stackoverflow", tmp_path, users=1).names == ("u1",)


def test_the_model_has_as_many_words_as_the_data() -> None:
    assert WORDS == VOCABULARY


def test_a_tie_of_tags_is_the_lowest_rank_and_files_need_no_order() -> None:
    assert encode([("a b", "c", "y|x")], {"a": 0}, {"x": 3, "y": 8}) == ([[0, 1, 1]], [3], 0)


def test_hdf5_of_tff_reads_the_same(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    reference = rows(load_federation("stackoverflow", parquet(tmp_path / "one")))
    vocabularies(tmp_path / "two")
    with h5py.File(tmp_path / "two" / "stackoverflow" / "stackoverflow_train.h5", "w") as file:
        for user in ("u1", "u2", "u3"):
            posts = [post for post in POSTS if post[0] == user]
            for i, key in enumerate(("tokens", "title", "tags"), start=1):
                file[f"examples/{user}/{key}"] = np.array([post[i].encode() for post in posts], dtype="S40")
    assert rows(load_federation("stackoverflow", tmp_path / "two")) == reference
    (tmp_path / "two" / "stackoverflow" / "stackoverflow_train.h5").write_bytes(b"no such file")
    with pytest.raises(DataError, match="isn't TFF's file of posts"):
        load_federation("stackoverflow", tmp_path / "two")


def test_without_h5py_the_other_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    vocabularies(tmp_path)
    (tmp_path / "stackoverflow" / "stackoverflow_train.h5").write_bytes(b"")
    with pytest.raises(MissingDependencyError, match=r"needs h5py; pip install .* or export the posts"):
        load_federation("stackoverflow", tmp_path)


def test_damaged_files_are_refused_with_a_sentence(tmp_path: Path) -> None:
    parquet(tmp_path, columns=("user", "tokens", "title", "labels"))
    with pytest.raises(DataError, match=r"train.parquet (can't be read|has no column 'tags')"):
        load_federation("stackoverflow", tmp_path)
    parquet(tmp_path, [post for post in POSTS if post[0] == "u3"])
    with pytest.raises(DataError, match="has no user with two posts under the 500 most frequent tags"):
        load_federation("stackoverflow", tmp_path)
    (tmp_path / "stackoverflow" / "train.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match="can't be read as parquet"):
        load_federation("stackoverflow", tmp_path)


def test_vocabularies_that_are_too_short_or_damaged_are_refused(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("a 3\nb 2\n")
    assert read_words(tmp_path / "words", 2) == {"a": 0, "b": 1}
    with pytest.raises(DataError, match="has 2 words where 3 are wanted"):
        read_words(tmp_path / "words", 3)
    (tmp_path / "tags").write_text('{"x": 1, "y": 5}')
    assert read_tags(tmp_path / "tags", 2) == {"y": 0, "x": 1}
    for content in ("[", "[1, 2]", '{"x": 1}', '{"x": "many", "y": 2}'):
        (tmp_path / "tags").write_text(content)
        with pytest.raises(DataError, match="tags"):
            read_tags(tmp_path / "tags", 2)
