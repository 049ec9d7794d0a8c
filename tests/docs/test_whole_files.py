"""A guide that promises whole files keeps its word: each block stands alone, in at most sixty lines."""

import pytest

from tests.docs.pages import ROOT, blocks

GUIDE = ROOT / "docs" / "guides" / "write-a-method.md"
FILES = [block for block in blocks(GUIDE) if block.language == "python"]


@pytest.mark.parametrize("number", range(len(FILES)))
def test_a_method_of_ones_own_is_one_file_of_at_most_sixty_lines(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(FILES[number].body.splitlines()) <= 60
    exec(compile(FILES[number].body, f"{GUIDE.name}, file {number + 1}", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


def test_there_is_a_rule_a_personalization_method_and_a_policy():
    kinds = ["Aggregator", "Personalizer", "Policy"]
    assert [kind for block in FILES for kind in kinds if f"{kind}):" in block.body] == kinds
