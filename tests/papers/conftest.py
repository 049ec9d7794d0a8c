import pytest


@pytest.fixture
def marks(tmp_path):
    """Where toy cells leave a file per execution."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of cells of the test's own."""
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cells"
