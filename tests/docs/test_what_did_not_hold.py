"""The page of surprising findings quotes stored results, rounded, and no others."""

from pathlib import Path

import pytest

from holdfast.papers.engine.catalog import experiments_of, find
from holdfast.papers.engine.store import Store

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "what-did-not-hold.md").read_text()


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        (
            "pde/table4",
            {
                ("digits/after the warm-up", "worst_group"): "80.6 %",
                ("digits/after the expansion", "worst_group"): "84.7 %",
                ("digits/group-subsampled for PDE's epochs", "worst_group"): "86.1 %",
            },
        ),
        (
            "crest/where",
            {
                ("group norm/crest", "accuracy"): "49.0 against",
                ("group norm/random", "accuracy"): "45.5 %",
                ("group norm/stratified random", "accuracy"): "49.2 %",
            },
        ),
        (
            "s2l/problems",
            {
                ("10%/s2l by source", "loss"): "1.97 with S2L",
                ("10%/random", "loss"): "2.10 with a random",
                ("10%/source-balanced random", "loss"): "1.99 with equal",
            },
        ),
        (
            "ditto/figure8",
            {
                ("a3-20/early", "ditto-best/pooled"): "accuracy of 69 %",
                ("a3-20/early", "last/pooled"): "has 66 %",
                ("a3-20/early", "third/pooled"): "has 82 %, and",
            },
        ),
        (
            "ditto/table8",
            {
                ("a3-20/fedmgda", "fedmgda/pooled"): "of 81 % (",
                ("clean/plain", "finetuning/pooled"): "has 90 %",
                ("clean/plain", "ditto-auto/pooled"): "Ditto 88 %. Personal",
            },
        ),
    ],
)
def test_numbers_are_those_of_the_stored_results(name, quoted):
    results = Store(ROOT / "results", experiments_of(name.partition("/")[0]), "cpu").results(find(name))
    assert results is not None
    text = " ".join(PAGE.split())
    for (cell, metric), words in quoted.items():
        number = next(word for word in words.split() if word[0].isdigit()).rstrip(".,")
        digits = len(number.partition(".")[2])
        stored = results.mean(cell, metric) * (100 if metric.endswith("/pooled") else 1)  # shares are quoted in %
        assert f"{stored:.{digits}f}" == number, (cell, metric)
        assert words in text
