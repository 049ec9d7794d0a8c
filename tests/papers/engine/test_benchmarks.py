import json

import pytest

from holdfast.errors import DataError
from holdfast.papers.engine.benchmarks import Ratio, read_benchmarks, write_benchmark


@pytest.mark.parametrize(
    ("value", "better", "met"),
    [(0.9, "lower", True), (1.1, "lower", False), (0.9, "higher", False), (1.0, "higher", True)],
)
def test_a_target_is_a_maximum_or_a_minimum(value, better, met):
    assert Ratio("memory", value, 1.0, "peer", better=better).met is met


def test_what_was_written_is_read_by_name(tmp_path):
    ratios = (Ratio("time", 0.5, 1.0, "torch DataLoader", 0.01), Ratio("speed", 3.0, 2.0, "a loop", better="higher"))
    write_benchmark("loader", ratios, tmp_path)
    file = write_benchmark("greedy", ratios[:1], tmp_path)
    assert file == tmp_path / "benchmarks" / "greedy.json"
    greedy, loader = read_benchmarks(tmp_path)
    assert (greedy.name, loader.name, loader.ratios) == ("greedy", "loader", ratios)
    stored = json.loads(file.read_text())
    assert list(stored) == ["name", "commit", "ratios"]
    assert set(stored["ratios"][0]) == {"name", "value", "target", "peer", "spread", "better"}


def test_no_benchmarks_are_an_empty_list(tmp_path):
    assert read_benchmarks(tmp_path) == ()


@pytest.mark.parametrize("change", [{"better": "bigger"}, {"value": None}, {"extra": 1}])
def test_an_odd_file_is_refused(tmp_path, change):
    file = write_benchmark("loader", [Ratio("time", 0.5, 1.0, "peer")], tmp_path)
    stored = json.loads(file.read_text())
    stored["ratios"][0].update(change)
    file.write_text(json.dumps(stored))
    with pytest.raises(DataError, match="not a benchmark's file"):
        read_benchmarks(tmp_path)
