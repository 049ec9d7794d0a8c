"""Training, validation and test rows: by a column, by folders or files of those names, by time, or made.

A split that is made is stratified by group, so that the rarest group is in every part, and seeded. One that is given
but lacks a part has it cut from training, and that is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.data.clients.partitions import Partition, split_parts
from holdfast.data.own.source import PART_NAMES, PARTS
from holdfast.data.own.values import numbers_of, plain
from holdfast.data.own.words import shortened
from holdfast.errors import DataError, counted
from holdfast.streams import data_stream

Codes = NDArray[np.int64]

_YEAR_FIRST = (
    (r"^(\d{4})[/.](\d\d?)[/.](\d\d?)($|[ T])", r"\1-\2-\3\4"),
    (r"^(\d{4})-(\d)-", r"\1-0\2-"),
    (r"^(\d{4}-\d\d)-(\d)($|[ T])", r"\1-0\2\3"),
)


def parts_by_column(column: pa.ChunkedArray, name: str, place: str) -> Codes:
    """The part of each row by a column that says train, val or test (or 0, 1, 2).

    Raises:
        DataError: if a row says something else.
    """
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        raise DataError(
            f"the split column {name!r} of {place} holds {column.type}; give train, val or test in each row"
        )
    words = plain(column).cast(pa.string())
    encoded = words.dictionary_encode().unify_dictionaries().combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    known = [PARTS.get(str(word).strip().lower().removesuffix(".0"), -1) for word in encoded.dictionary.to_pylist()]
    indices = np.asarray(pc.fill_null(encoded.indices, len(known)).to_numpy(zero_copy_only=False), np.int64)
    codes = np.array([*known, -1], np.int64)[indices]
    wrong = np.flatnonzero(codes < 0)
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{place} has {shortened(str(words[row].as_py()))!r} in column {name!r} of row {row + 1}, which isn't a "
            "part of the data; give train, val or test (or 0, 1, 2) in each row, or name another column with --split"
        )
    return codes


def parts_by_folder(paths: Iterable[str | None]) -> Codes | None:
    """The part of each image by the folder that its path begins with (``train/cats/1.jpg``); None unless all say one.

    Such folders are the split where no table describes the images; a table that says nothing of it doesn't undo it.
    """
    folders = [(path or "").strip("./").partition("/")[0].lower() for path in paths]
    if "train" not in folders or not set(folders) <= PARTS.keys() or len(set(folders)) < 2:
        return None
    return np.array([PARTS[folder] for folder in folders], np.int64)


def parts_by_time(column: pa.ChunkedArray, name: str, place: str, shares: tuple[float, float]) -> Codes:
    """The oldest rows for training, the next for validation, the newest for the test; rows of one moment stay together.

    Raises:
        DataError: if a row has no time, or too few moments differ.
    """
    column = plain(column)
    if pa.types.is_string(column.type):
        try:
            column = _dashed(column).cast(pa.timestamp("us"))
        except pa.ArrowInvalid as error:
            raise DataError(
                f"the times in column {name!r} of {place} can't be read ({shortened(str(error), 120)}); give numbers "
                "or dates such as 2026-01-31 or 2026-01-31 12:00:00"
            ) from error
    moments = numbers_of(column, name, place)
    missing = np.flatnonzero(~np.isfinite(moments))
    if len(missing):
        raise DataError(f"{place} has no time in column {name!r} of row {int(missing[0]) + 1}; fill it or drop the row")
    distinct, places, counts = np.unique(moments, return_inverse=True, return_counts=True)
    if len(distinct) < 3:
        raise DataError(
            f"{place} has too few different times in column {name!r} ({len(distinct)}) to split by; use --split or "
            "leave --time out"
        )
    # The last moment of training and of validation: those that come nearest to the shares and leave nothing empty.
    validation, test = shares
    until = np.cumsum(counts) / len(moments)
    first = int(np.argmin(abs(until[:-2] - (1 - validation - test))))
    second = first + 1 + int(np.argmin(abs(until[first + 1 : -1] - (1 - test))))
    return (places > first).astype(np.int64) + (places > second)


def _dashed(dates: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates whose year comes first with dashes: 2015/12/31, 2015.1.5. Others could be read in two ways."""
    for written, dashed in _YEAR_FIRST:
        dates = pc.replace_substring_regex(dates, written, dashed)
    return dates


def shuffled(rows: Codes, seed: int) -> NDArray[np.uint32]:
    """Rows in the random order by which a split is made."""
    # Short numbers stay in the cache while they are shuffled; draws and order don't depend on their length.
    return data_stream(seed, "own split").permutation(rows.astype(np.uint32))


def stratified(
    groups: Codes,
    shares: tuple[float, float],
    seed: int,
    rows: Codes | None = None,
    order: NDArray[np.uint32] | None = None,
) -> Codes:
    """A random split in which every group has its share of each part.

    A group of three or more is in all parts, one of two in training and test, a single example in training.

    Args:
        groups: the group of each row, int64 of shape (n,).
        shares: of validation and test; a share of 0 gives nothing to that part.
        seed: decides it.
        rows: split only these; others are -1.
        order: what `shuffled` gives for them, where it was drawn before.

    Returns:
        0, 1 or 2 for each row, int64 of shape (n,).
    """
    chosen = np.arange(len(groups)) if rows is None else rows
    drawn = shuffled(chosen, seed) if order is None else order
    short = groups.astype(np.min_scalar_type(int(groups.max(initial=0))))
    order = drawn[np.argsort(short.take(drawn), kind="stable")]  # by counting, where numbers are short
    codes = np.full(len(groups), -1, np.int64)
    codes[chosen] = 0
    ordered = short[order]
    starts = [*np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(order)]).tolist(), len(order)]
    for start, end in pairwise(starts):
        n = end - start
        test = _share(n, shares[1], at_least=n >= 2)
        validation = min(_share(n, shares[0], at_least=n - test >= 2), n - test - 1)
        codes[order[start : start + test]] = 2
        codes[order[start + test : start + test + max(validation, 0)]] = 1
    return codes


def _share(n: int, share: float, *, at_least: bool) -> int:
    return 0 if share == 0 else min(max(round(share * n), int(at_least)), n - 1)


def completed(codes: Codes, groups: Codes, shares: tuple[float, float], seed: int) -> tuple[Codes, list[str]]:
    """A given split whose missing parts are cut from training, and what was cut, a line each.

    Raises:
        DataError: if there is nothing to train on.
    """
    counts = [int((codes == part).sum()) for part in range(3)]
    if not counts[0]:
        raise DataError("no row is for training; say so in the split column, or leave the split to be made")
    lacking = [part for part in (1, 2) if not counts[part]]
    if not lacking:
        return codes, []
    wanted = (shares[0] if 1 in lacking else 0.0, shares[1] if 2 in lacking else 0.0)
    cut = stratified(groups, wanted, seed, np.flatnonzero(codes == 0))
    names = " and ".join(PART_NAMES[part] for part in lacking)
    return np.where(codes == 0, cut, codes), [f"split: no rows for {names}, so they are cut from training by group"]


def by_client(owners: Codes, clients: Sequence[str], seed: int, column: str) -> Codes:
    """The split of a federation: 72 % of each client's rows for training, 8 % for validation, 20 % for the test.

    Raises:
        DataError: if a client has fewer than two rows.
    """
    small = np.flatnonzero(np.bincount(owners[owners >= 0], minlength=len(clients)) < 2)
    if len(small):
        alike = f", like {counted(len(small) - 1, 'other')} of {len(clients):,}" if len(small) > 1 else ""
        raise DataError(
            f"the client {shortened(clients[small[0]])!r} has one row{alike}, and it needs one to train on and one to "
            f"be tested on; leave such clients out, join them, or see whether {column!r} is the column that says whose "
            "rows they are"
        )
    codes = np.zeros(len(owners), np.int64)
    parts = split_parts(Partition.of_owners(owners, len(clients)), data_stream(seed, "72/8/20"))
    for code, part in enumerate(parts):
        codes[part.rows] = code
    return codes
