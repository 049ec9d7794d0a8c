"""Every section, table, figure and theorem that papers, theory and reports cite is there in the document they cite.

``documents.json`` has the numbers of each document, written down from its text; ``2.1-5`` stands for 2.1, 2.2, ... 2.5.
"""

import ast
import json
import re
import tokenize
from pathlib import Path

import pytest

import holdfast

PACKAGE = Path(holdfast.__file__).parent
DOCUMENTS = json.loads(Path(__file__).with_name("documents.json").read_text())

#: Which document a folder or a module is about; the numbers of chapters tell those of the dissertation apart.
ABOUT = {
    "papers/ditto": ["ditto"],
    "papers/personalization": ["personalization"],
    "papers/pde": ["pde"],
    "papers/spare": ["dissertation"],
    "papers/crest": ["dissertation"],
    "papers/s2l": ["dissertation"],
    "papers/epic": ["dissertation"],
    "papers/clip": ["dissertation"],
    "theory/ditto": ["ditto"],
    "theory/personalization": ["personalization"],
    "theory/spurious": ["pde", "dissertation"],
    "theory/s2l.py": ["dissertation"],
    "theory/epic.py": ["dissertation"],
}

KINDS = {
    "section": "Section",
    "appendix": "Section",
    "appendices": "Section",
    "chapter": "Section",
    "eq.": "Equation",
    "equation": "Equation",
    "lemma": "Lemma",
    "corollary": "Corollary",
    "corollaries": "Corollary",
    **{kind.lower(): kind for kind in ("Table", "Figure", "Theorem", "Definition", "Proposition", "Algorithm")},
}
NUMBER = r"(?:[A-H](?:\.\d+)*|\d+(?:\.\d+)*)(?![\w.]*\d)"
CITATION = re.compile(
    rf"\b(?P<kind>{'|'.join(re.escape(kind) for kind in KINDS)})s?\s+"
    rf"(?P<numbers>{NUMBER}[a-f]?\b(?:(?:, | and | to |, and ){NUMBER}[a-f]?\b)*)",
    re.IGNORECASE,
)


def expanded(numbers):
    """``"1-3 B.1"`` as a set of single numbers."""
    single = set()
    for part in numbers.split():
        first, dash, last = part.partition("-")
        stem, point, start = first.rpartition(".")
        single |= {f"{stem}{point}{number}" for number in range(int(start), int(last) + 1)} if dash else {part}
    return single


def citations(text):
    """Kind and number of everything that a text cites."""
    for found in CITATION.finditer(" ".join(text.split())):
        for number in re.findall(NUMBER, found["numbers"]):
            yield KINDS[found["kind"].lower()], number


def texts(file):
    """Comments and strings of a module, docstrings included."""
    with tokenize.open(file) as opened:
        for token in tokenize.generate_tokens(opened.readline):
            if token.type == tokenize.COMMENT:
                yield token.string
            elif token.type == tokenize.STRING:
                try:
                    yield str(ast.literal_eval(token.string))
                except ValueError:  # of a formatted string the words are enough
                    yield token.string


def files_of(place):
    path = PACKAGE / place
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def missing(place):
    """What is cited at a place and in none of its documents."""
    known = {
        kind: set().union(*(expanded(DOCUMENTS[name].get(kind, "")) for name in ABOUT[place]))
        for kind in set(KINDS.values())
    }
    return [
        f"{file.relative_to(PACKAGE)}: {kind} {number}"
        for file in files_of(place)
        for text in texts(file)
        for kind, number in citations(text)
        if number not in known[kind]
    ]


@pytest.mark.parametrize("place", ABOUT)
def test_what_is_cited_is_in_the_document(place):
    assert missing(place) == []


@pytest.mark.parametrize("place", ABOUT)
def test_a_document_is_linked_where_it_is_implemented(place):
    if place == "theory/personalization":
        pytest.skip("the manuscript has no address; its package of experiments says so")
    first = PACKAGE / place / "__init__.py" if (PACKAGE / place).is_dir() else PACKAGE / place
    assert "https://" in ast.get_docstring(ast.parse(first.read_text()))


def test_every_document_with_experiments_is_checked():
    folders = {file.parent.name for file in (PACKAGE / "papers").glob("*/tables.py")}
    assert {f"papers/{folder}" for folder in folders - {"health"}} <= set(ABOUT)  # its beds are of no document


def test_citations_are_read_out_of_prose():
    text = "Theorems 5 to 8 (Appendix B.2), Figures 1b and 6, Lemmas 7, 11; Eq. 2.6 to 2.10, Table 8. Section\n 3.1"
    assert set(citations(text)) == {
        ("Theorem", "5"),
        ("Theorem", "8"),
        ("Section", "B.2"),
        ("Figure", "1"),
        ("Figure", "6"),
        ("Lemma", "7"),
        ("Lemma", "11"),
        ("Equation", "2.6"),
        ("Equation", "2.10"),
        ("Table", "8"),
        ("Section", "3.1"),
    }
    assert expanded("1-3 B.1-2 C") == {"1", "2", "3", "B.1", "B.2", "C"}
