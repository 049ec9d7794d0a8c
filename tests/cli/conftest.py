import pytest


@pytest.fixture
def somewhere_else(tmp_path, monkeypatch):
    """An empty folder and a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
