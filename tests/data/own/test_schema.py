"""Other data is read as the training data was."""

from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.reading import read_rows


def test_categories_that_the_model_was_not_given_are_named_with_their_row(tmp_path):
    write = lambda name, colours: (tmp_path / name).write_text(  # noqa: E731
        "colour,size,y\n" + "".join(f"{colour},{place},{place % 2}\n" for place, colour in enumerate(colours))
    )
    write("train.csv", ["red", "blue"] * 20)
    write("new.csv", ["red", "blue", "", "green", "green"])
    schema = read_rows(str(tmp_path / "train.csv"), ReadingOptions(label="y")).schema
    assert schema.read(str(tmp_path / "train.csv")).notes == ()
    (note,) = schema.read(str(tmp_path / "new.csv")).notes
    assert "'green' in 2 rows (the first is row 4)" in note
    assert "'blue', 'red'" in note
