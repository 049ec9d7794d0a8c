import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from holdfast.data.readers.instructions import Instructions
from holdfast.finetuning import Trajectories, s2l_select
from holdfast.report.pages.selection import write_selection
from tests.report.reading import Element, read_page

Floats = NDArray[np.float32]

COUNTS = {"names": 8, "sums": 24, "words": 16}
DATA = Instructions.of(
    [
        {"prompt": f"{source} {i}", "response": str(i), "source": source}
        for source, n in COUNTS.items()
        for i in range(n)
    ]
)
#: Two kinds of curves, one of an example in four, in every source.
RARE = np.arange(48) % 4 == 0
CURVES = np.where(RARE[:, None], [3.0, 2.8], [2.0, 0.5]).astype(np.float32)


def page_of(folder: Path, *, by_source: bool, data: Instructions = DATA, curves: Floats = CURVES) -> Element:
    sources = data.sources if by_source else None
    chosen = s2l_select(curves, 16, k=2, sources=sources, start="k-means++")
    losses = Trajectories(np.arange(48), curves, tuple(range(1, 1 + curves.shape[1])), np.zeros(48, bool))
    return read_page(write_selection(folder / "a.html", chosen, data, losses, about="so", facts={}).read_text())


def heads(page: Element) -> list[str]:
    return [cell.text for cell in page.one("section", id_="sources").all("th", scope="col")]


def test_clusters_within_sources_bear_their_names(tmp_path: Path) -> None:
    page = page_of(tmp_path, by_source=True)
    cards = page.all("article")
    assert {card.one("h3").text.split()[3] for card in cards} == set(COUNTS)
    for card in cards:
        source = card.one("h3").text.split()[3]
        assert all(text.text.startswith(source) for text in card.all("li"))
        assert not card.all("p", class_="note")
    assert "clusters" in heads(page)
    assert "6 clusters of examples whose loss curves are similar, within 3 sources." in page.text


def test_clusters_of_all_sources_say_how_many_are_of_each(tmp_path: Path) -> None:
    page = page_of(tmp_path, by_source=False)
    rare, frequent = page.all("article")
    assert rare.one("h3").text.startswith("Cluster 2 8 of 12 chosen")
    assert rare.one("p", class_="note").text == "Sources: 6 of sums, 4 of words, 2 of names"
    assert frequent.one("h3").text.startswith("Cluster 1 8 of 36 chosen")
    assert frequent.one("p", class_="note").text == "Sources: 18 of sums, 12 of words, 6 of names"
    assert heads(page) == ["source", "examples", "chosen", "of the data", "of the choice", "weight"]
    rows = page.one("section", id_="sources").one("tbody").all("tr")
    assert [len(row.all("td")) for row in rows] == [5, 5, 5]
    assert "2 clusters of examples whose loss curves are similar, across 3 sources." in page.text


def test_of_many_sources_the_rest_is_summed_up(tmp_path: Path) -> None:
    many = Instructions.of([{"prompt": "a", "response": "b", "source": f"s{i // 4 % 9}"} for i in range(48)])
    rare, _ = page_of(tmp_path, by_source=False, data=many).all("article")
    said = "Sources: 2 of s0, 2 of s1, 2 of s2, 1 of s3, 1 of s4, 1 of s5, 3 of 3 other sources"
    assert rare.one("p", class_="note").text == said


def test_rows_that_were_passed_over_are_counted_and_one_is_named(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "response": "b" if i != 3 else None, "source": "s"} for i in range(49)]
    text = page_of(tmp_path, by_source=False, data=Instructions.of(rows, skip_bad=True)).text
    assert "1 row passed over, such as: row 4 of data has no prompt" in text


def test_one_source_is_not_spoken_of(tmp_path: Path) -> None:
    alone = Instructions.of([{"prompt": "a", "response": str(i)} for i in range(48)])
    page = page_of(tmp_path, by_source=False, data=alone)
    assert not page.all("section", id_="sources")
    assert "source" not in page.one("section", id_="clusters").text.lower()
    assert "whose loss curves are similar." in page.text


@pytest.mark.parametrize("curves", [CURVES[:, :1], 0 * CURVES, -CURVES])
def test_a_page_of_one_point_or_of_losses_that_are_not_above_0(tmp_path: Path, curves: Floats) -> None:
    plot = page_of(tmp_path, by_source=False, curves=curves).one("section", id_="curves").one("div", class_="plot")
    drawn = plot.all("path", class_="line")
    places = [[float(place) for place in re.findall(r"[-\d.]+", str(path.attributes["d"]))] for path in drawn]
    assert len(places) >= 3
    assert all(len(own) >= 2 * curves.shape[1] and 0 <= min(own) <= max(own) <= 1000 for own in places)


def test_an_example_without_a_prompt_has_an_empty_one(tmp_path: Path) -> None:
    alone = Instructions.of([{"messages": [{"role": "assistant", "content": f"r{i}"}]} for i in range(48)])
    texts = page_of(tmp_path, by_source=False, data=alone).all("li", class_="chosen")
    assert all(text.all("p")[0].text == "" for text in texts)
    assert all(text.all("p")[1].text.startswith("r") for text in texts)
