"""The loop over the cells of a csv file, from which the machine code of `csv_code` is made.

It reads what most cells of a table are, short decimals and words that repeat, and writes down where all others begin
and end: those are Arrow's to read, so that what is missing, a date or a number is what Arrow says. Numbers are
correctly rounded: decimals that float64 holds exactly by one division [1], others by the upper half of a product of 128
bits where that is enough to know the rounding [2].

[1] W. Clinger, How to read floating point numbers accurately, PLDI 1990.
[2] D. Lemire, Number parsing at a gigabyte per second, Software: Practice and Experience 2021, section 5.

Nothing imports this module where files are read: it is here to be compiled, and
``python -m holdfast.data.own.csv_cells`` writes csv_cells.ll beside it. That takes Numba and seconds; loading the
result takes neither.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numba import int64, njit, types, uint8, uint64

from holdfast.machine_code import compiled

#: Kinds of columns.
FLOATS, WHOLES, WORDS, OTHERS = range(4)
#: Places in the table of a column's words, and how many of them may be taken.
SLOTS, MOST_WORDS = 4096, 2048
#: Powers of ten from minus this to this are known for long decimals; none of their products is subnormal or infinite.
LARGEST_POWER = 280

_NEWLINE, _RETURN, _QUOTE, _MINUS, _PLUS, _ZERO, _E = 10, 13, 34, 45, 43, 48, 101
_EACH_BYTE, _HIGH_BITS, _MIXER = 0x0101010101010101, 0x8080808080808080, 0x9E3779B97F4A7C15
_SHORT = 1 << 53  # float64 holds smaller whole numbers exactly
_EXACT_POWER = 22  # and the powers of ten to this
_LONGEST_FLOAT, _LONGEST_WHOLE = 19, 18  # digits that 64 bits hold, with and without the sign


@njit
def _eight(text: Any, at: Any) -> Any:
    """Eight bytes as one number, the first the lowest."""
    word = uint64(0)
    for place in range(8):
        word |= uint64(text[at + place]) << uint64(8 * place)
    return word


@njit
def _marks(word: Any, byte: Any) -> Any:
    """The highest bit of each byte that equals `byte`; of bytes above the first that does, some others too."""
    differing = word ^ (uint64(byte) * uint64(_EACH_BYTE))
    return (differing - uint64(_EACH_BYTE)) & ~differing & uint64(_HIGH_BITS)


@njit
def _first_marked(marks: Any) -> Any:
    """The place of the lowest marked byte."""
    below = (marks & (~marks + uint64(1))) - uint64(1)  # 8 k + 7 ones: in bytes of one bit each, k ones
    return int64(((below >> uint64(7)) & uint64(_EACH_BYTE)) * uint64(_EACH_BYTE) >> uint64(56))


@njit
def _end_of_cell(text: Any, at: Any, end: Any, separator: Any) -> Any:
    """Where the cell that begins at `at` ends, or -1 where its quotes don't."""
    if text[at] == _QUOTE:
        at += 1
        while at < end:
            marks = _marks(_eight(text, at), _QUOTE)
            if marks == uint64(0):
                at += 8
                continue
            at += _first_marked(marks) + 1
            if text[at] != _QUOTE:  # else it is one quote, written twice
                return at if at <= end else -1
            at += 1
        return -1
    while True:
        word = _eight(text, at)
        marks = _marks(word, separator) | _marks(word, _NEWLINE) | _marks(word, _RETURN)
        if marks != uint64(0):
            return at + _first_marked(marks)
        at += 8


@njit
def _hash(text: Any, at: Any, length: Any) -> Any:
    mixed = uint64(length)
    if length == 0:
        return mixed
    while length > 8:
        mixed = (mixed ^ _eight(text, at)) * uint64(_MIXER)
        mixed ^= mixed >> uint64(32)
        at += 8
        length -= 8
    return (mixed ^ (_eight(text, at) << uint64(8 * (8 - length)))) * uint64(_MIXER)


@njit
def _same(text: Any, one: Any, other: Any, length: Any) -> Any:
    for place in range(length):
        if text[one + place] != text[other + place]:
            return False
    return True


@njit
def _upper_half(a: Any, b: Any) -> Any:
    """Of the product of two numbers of 64 bits: the upper 64, and the highest of the lower."""
    short = uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> uint64(32), a & short, b >> uint64(32), b & short
    middle = a_high * b_low + (a_low * b_low >> uint64(32))
    other = a_low * b_high + (middle & short)
    return a_high * b_high + (middle >> uint64(32)) + (other >> uint64(32)), (other >> uint64(31)) & uint64(1)


@njit
def _rounded(digits: Any, power: Any, fives: Any) -> Any:
    """The bits of the float64 next to ``digits x 10^power``, or 0 where 64 bits of 5^power are too few to know.

    `fives` holds powers of five without what is behind their first 64 bits, so the product is too small by less than
    one in the last place of its upper half, two where that is shifted.
    """
    if power < -LARGEST_POWER or power > LARGEST_POWER:
        return uint64(0)
    shift = 0
    for step in (32, 16, 8, 4, 2, 1):
        if digits >> uint64(64 - step) == uint64(0):
            digits <<= uint64(step)
            shift += step
    high, next_bit = _upper_half(digits, fives[power + LARGEST_POWER])
    if high >> uint64(63) == uint64(0):
        high = (high << uint64(1)) | next_bit
        shift += 1
    rest = high & uint64(0x7FF)
    if rest >= uint64(0x3FE) and rest <= uint64(0x400):
        return uint64(0)
    exponent = ((217706 * power) >> 16) + 64 - shift + 1023  # 217706 / 2^16 = log2 10
    return (uint64(exponent) << uint64(52)) + (high >> uint64(11)) - uint64(1 << 52) + uint64(rest > uint64(0x400))


@njit
def _number(text, at, separator, point, whole, place, numbers, wholes, tens, fives):  # type: ignore[no-untyped-def]
    """Write the number that is a cell to `place`; where the cell ends, or -1 if that is left to Arrow."""
    negative = text[at] == _MINUS
    at += int64(negative)
    digits, first, start = uint64(0), at, at
    while uint8(text[at] - _ZERO) < 10:
        digits = digits * uint64(10) + uint64(text[at] - _ZERO)
        at += 1
    count = at - start
    power = 0
    if count == 0 or (whole and count > _LONGEST_WHOLE):
        return -1
    if not whole:
        if text[at] == point:
            at += 1
            start = at
            while uint8(text[at] - _ZERO) < 10:
                digits = digits * uint64(10) + uint64(text[at] - _ZERO)
                at += 1
            power = start - at
            count -= power
            if power == 0:
                return -1
        while count > _LONGEST_FLOAT and (text[first] == _ZERO or text[first] == point):
            count -= int64(text[first] == _ZERO)
            first += 1
        if count > _LONGEST_FLOAT:
            return -1
        if text[at] | 32 == _E:
            at += 1
            falling = text[at] == _MINUS
            at += int64(falling or text[at] == _PLUS)
            start, exponent = at, 0
            while uint8(text[at] - _ZERO) < 10 and at < start + 4:
                exponent = exponent * 10 + int64(text[at] - _ZERO)
                at += 1
            if at == start:
                return -1
            power += -exponent if falling else exponent
    if text[at] != separator and text[at] != _NEWLINE and text[at] != _RETURN:
        return -1
    if whole:
        wholes[place] = -int64(digits) if negative else int64(digits)
    elif digits < uint64(_SHORT) and -_EXACT_POWER <= power <= _EXACT_POWER:
        value = float(digits) / tens[-power] if power < 0 else float(digits) * tens[power]
        numbers[place] = -value if negative else value
    else:
        bits = _rounded(digits, power, fives) if digits else uint64(0)
        if bits == uint64(0):
            return -1
        wholes[place] = int64(bits | (uint64(negative) << uint64(63)))
    return at


def read_cells(  # type: ignore[no-untyped-def]
    text, end, separator, point, columns, kinds, room,
    numbers, wholes, codes, slots, hashes, starts, lengths, rows, counts, tens, fives,
):  # fmt: skip
    """Read whole lines of a csv file.

    Each column has `room` places in the arrays that are written.

    Args:
        text: bytes; 16 line ends stand behind them.
        end: where they end, after a line end.
        separator: the byte between cells.
        point: the byte before decimals.
        columns: how many there are.
        kinds: of each.
        room: rows that there is room for.
        numbers: out, float64: the values of columns of floats.
        wholes: out, int64, the same memory: those of columns of whole numbers.
        codes: out, int32, the same memory, so that each has its place twice: for words, the cell that a row repeats, of
            those that are written down.
        slots: int32, `SLOTS` for each column, -1 all of them.
        hashes: uint64, `MOST_WORDS` for each column.
        starts: out, int32: where cells begin that are not read here; of columns of words, each different one.
        lengths: out, int32: their lengths.
        rows: out, int32: and their rows.
        counts: out, int64, 0 for each column: how many.
        tens: float64, powers of ten from 0.
        fives: uint64, the first 64 bits of powers of five from -`LARGEST_POWER`.

    Returns:
        How many rows there are; -1 if a line has another number of cells, quotes don't end, or a column has too many
        words; -2 if there are more rows than room.
    """
    at, row = 0, 0
    while at < end:
        if row == room:
            return -2
        if text[at] == _NEWLINE or text[at] == _RETURN:
            return -1
        for column in range(columns):
            start, place = at, column * room + row
            kind = kinds[column]
            if kind == FLOATS or kind == WHOLES:
                at = _number(text, start, separator, point, kind == WHOLES, place, numbers, wholes, tens, fives)
                if at < 0:
                    wholes[place] = 0
            if kind >= WORDS or at < 0:
                at = _end_of_cell(text, start, end, separator)
                if at < 0:
                    return -1
                length = at - start
                mark = column * room + counts[column]
                new = True
                if kind == WORDS:
                    mixed = _hash(text, start, length)
                    slot = int64(mixed >> uint64(52))
                    while True:
                        code = slots[column * SLOTS + slot]
                        if code < 0:
                            if counts[column] == MOST_WORDS:
                                return -1
                            code = counts[column]
                            slots[column * SLOTS + slot] = code
                            hashes[column * MOST_WORDS + code] = mixed
                            break
                        known = column * room + code
                        if (
                            hashes[column * MOST_WORDS + code] == mixed
                            and lengths[known] == length
                            and (length <= 8 or _same(text, starts[known], start, length))
                        ):
                            new = False
                            break
                        slot = (slot + 1) & (SLOTS - 1)
                    codes[2 * column * room + row] = code
                if new:
                    starts[mark] = start
                    lengths[mark] = length
                    rows[mark] = row
                    counts[column] += 1
            if column < columns - 1:
                if text[at] != separator:
                    return -1
                at += 1
        if text[at] == _RETURN:
            at += 1
        if text[at] != _NEWLINE:
            return -1
        at += 1
        row += 1
    return row


def gather(text, starts, lengths, count, out):  # type: ignore[no-untyped-def]
    """Write cells one under the other, a line each; how many bytes they are.

    Args:
        text: bytes.
        starts: int32: where the cells begin.
        lengths: int32: how long they are.
        count: how many there are.
        out: bytes, room for all of them and a line end each.
    """
    at = 0
    for cell in range(count):
        start = starts[cell]
        for place in range(lengths[cell]):
            out[at + place] = text[start + place]
        at += lengths[cell]
        out[at] = _NEWLINE
        at += 1
    return at


def main() -> None:
    """Compile both."""
    byte, short, long = (types.CPointer(kind) for kind in (types.uint8, types.int32, types.int64))
    real, bits = types.CPointer(types.float64), types.CPointer(types.uint64)
    reading = types.int64(
        byte, types.int64, types.uint8, types.uint8, types.int64, long, types.int64,
        real, long, short, short, bits, short, short, short, long, real, bits,
    )  # fmt: skip
    gathering = types.int64(byte, short, short, types.int64, byte)
    source = Path(__file__)
    text = compiled(source, {read_cells: reading, gather: gathering})
    source.with_suffix(".ll").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
