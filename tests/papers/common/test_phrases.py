from holdfast.papers.common.phrases import listed, slashed


def test_numbers_are_listed_with_their_names_in_the_form_that_is_given():
    numbers = {"erm": 62.61, "a {curly} name": 0.5}
    assert listed(numbers, "{value:.1f} with {name}") == "62.6 with erm, 0.5 with a {curly} name"
    assert listed({}, "{name} {value}") == ""


def test_numbers_of_seeds_are_slashed_in_their_order():
    assert slashed(iter([0.5, 0.25]), 2) == "0.50 / 0.25"
    assert slashed([1.0]) == "1.000"
