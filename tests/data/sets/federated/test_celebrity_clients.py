from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.data import load_federation
from holdfast.data.sets.federated.celebrity_clients import group_celebrities, split_environments
from holdfast.errors import DataError


def faces(root: Path, celebrities: int = 8, images: int = 12, *, blond_men: int = 6) -> Path:
    """Even celebrities are women; of each the first six images are blond (of men as many as asked)."""
    folder = root / "celeba" / "img_align_celeba"
    folder.mkdir(parents=True)
    lines, identities, number = [], [], 0
    for person in range(celebrities):
        for image in range(images):
            name = f"{number:06d}.jpg"
            male = person % 2
            blond = image < (blond_men if male else 6)
            Image.fromarray(np.full((218, 178, 3), 10 * person, np.uint8)).save(folder / name)
            lines.append(f"{name} {1 if blond else -1} {1 if male else -1}")
            identities.append(f"{name} {person + 1}")
            number += 1
    text = f"{number}\nBlond_Hair Male\n" + "\n".join(lines) + "\n"
    (root / "celeba" / "list_attr_celeba.txt").write_text(text)
    (root / "celeba" / "identity_CelebA.txt").write_text("\n".join(identities) + "\n")
    return root


def test_a_celebrity_is_on_one_client_and_hair_goes_with_the_environment(tmp_path: Path) -> None:
    clients = load_federation("celeba-blond", faces(tmp_path), celebrities=4, check_counts=False)
    assert len(clients) == 2 and clients.input_shape == (3, 64, 64) and clients.classes == 2
    assert clients.elsewhere is not None
    people = []
    for client in range(2):
        parts = [part.of(client)[0] for part in (clients.train, clients.validation, clients.test, clients.elsewhere)]
        people.append(set((torch.cat(parts).mean((1, 2, 3)) * 25.5).round().long().tolist()))
    assert not people[0] & people[1]


def test_blond_women_and_blond_men_are_in_different_environments_and_the_rest_in_halves() -> None:
    rng = np.random.default_rng(0)
    owners, blond, male = (rng.integers(0, high, 4000) for high in (5, 2, 2))
    environment = split_environments(owners, blond.astype(bool), male.astype(bool), rng)
    assert not (environment[(blond == 1) & (male == 0)]).any()
    assert (environment[(blond == 1) & (male == 1)]).all()
    for client in range(5):
        for gender in (0, 1):
            rest = environment[(blond == 0) & (male == gender) & (owners == client)]
            assert abs(rest.mean() - 0.5) <= 0.5 / len(rest) + 1e-9


def test_only_clients_with_more_than_five_of_both_are_personalized(tmp_path: Path) -> None:
    faces(tmp_path, celebrities=4)
    chosen = load_federation("celeba-blond", tmp_path, celebrities=4, check_counts=False, stage="personalization")
    assert len(chosen) == 1
    faces(tmp_path / "few", celebrities=2, blond_men=5)
    with pytest.raises(DataError, match="more than 5 blond women"):
        load_federation("celeba-blond", tmp_path / "few", celebrities=2, check_counts=False, stage="personalization")


def test_celebrities_with_few_images_are_left_out() -> None:
    identity = np.array([1] * 5 + [2] * 4 + [3] * 6 + [4] * 9)
    owners = group_celebrities(identity, 1, np.random.default_rng(0))
    assert (owners[5:9] == -1).all() and sorted(set(owners.tolist())) == [-1, 0, 1, 2]
    with pytest.raises(DataError, match="don't fill a client"):
        group_celebrities(identity, 4, np.random.default_rng(0))


def test_other_data_than_the_published_and_damaged_lines_are_refused(tmp_path: Path) -> None:
    faces(tmp_path)
    with pytest.raises(DataError, match="9343"):
        load_federation("celeba-blond", tmp_path, celebrities=4)
    path = tmp_path / "celeba" / "identity_CelebA.txt"
    path.write_text(path.read_text().replace("000003.jpg 1", "000003.jpg one"))
    with pytest.raises(DataError, match="line 4"):
        load_federation("celeba-blond", tmp_path, celebrities=4, check_counts=False)
