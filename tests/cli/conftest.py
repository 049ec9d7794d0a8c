import pytest
import torch


@pytest.fixture
def somewhere_else(tmp_path, monkeypatch):
    """An empty folder, a wide terminal, and one thread."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
