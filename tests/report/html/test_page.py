"""The page in a real browser: it asks nothing of any network, sorts, and is seen in the light and in the dark."""

from contextlib import contextmanager

import pytest

from holdfast.report import write_report

pytestmark = pytest.mark.browser


@pytest.fixture
def shown(browser, shrinking, splits):
    """Opens the page; afterwards nothing may have complained and nothing may have been asked for."""
    file = write_report(shrinking, splits).resolve().as_uri()

    @contextmanager
    def show(**options):
        context = browser.new_context(**options)
        page = context.new_page()
        complaints, requests = [], []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file)
        yield page
        context.close()
        assert complaints == []
        assert [url for url in requests if not url.startswith("data:")] == [file]

    return show


def names(page):
    return page.locator("table.groups tbody th").evaluate_all("cells => cells.map(cell => cell.dataset.value)")


def column(page, place):
    cells = page.locator(f"table.groups tbody tr > :nth-child({place + 1})")
    return [float(value) for value in cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")]


def test_figures_have_a_size_and_images_are_decoded(shown):
    with shown(viewport={"width": 1280, "height": 900}) as page:
        figures = page.locator("figure svg[role=img]")
        assert figures.count() == 3
        for place in range(3):
            box = figures.nth(place).bounding_box()
            assert box["width"] > 200
            assert box["height"] > 100
        widths = page.locator("img").evaluate_all("images => images.map(image => image.naturalWidth)")
        assert widths
        assert set(widths) == {8}


@pytest.mark.parametrize("place", range(1, 6))
def test_clicking_a_header_sorts_and_clicking_again_reverses(shown, place):
    with shown() as page:
        head = page.locator("table.groups thead th").nth(place)
        page.locator("table.groups thead th").nth(0).locator("button").click()
        head.locator("button").click()
        rising = column(page, place)
        assert rising == sorted(rising)
        assert head.get_attribute("aria-sort") == "ascending"
        head.locator("button").click()
        assert column(page, place) == sorted(rising, reverse=True)
        assert head.get_attribute("aria-sort") == "descending"
        assert page.locator("table.groups [aria-sort=descending], table.groups [aria-sort=ascending]").count() == 1


def test_names_sort_too_and_the_order_really_changes(shown):
    with shown() as page:
        button = page.locator("table.groups thead button").first
        button.click()
        rising = names(page)
        button.click()
        assert names(page) == rising[::-1]
        assert names(page) != rising


@pytest.mark.parametrize("key", ["Enter", " "])
def test_the_keyboard_sorts(shown, key):
    with shown() as page:
        before = names(page)
        page.locator("table.groups thead button", has_text="Accuracy").focus()
        page.keyboard.press(key)
        assert column(page, 3) == sorted(column(page, 3), reverse=True)
        assert names(page) != before


def test_the_page_follows_the_colours_of_the_system(shown):
    seen = {}
    for scheme in ("light", "dark"):
        with shown(color_scheme=scheme) as page:
            seen[scheme] = page.evaluate(
                "() => { const style = getComputedStyle(document.body); "
                "return [style.backgroundColor, style.color].map("
                "colour => colour.match(/[0-9]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)) }"
            )
    assert seen["light"][0] > 600 > seen["light"][1]
    assert seen["dark"][0] < 150 < seen["dark"][1]


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_the_page_never_scrolls_sideways(shown, width):
    with shown(viewport={"width": width, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_configuration_opens(shown):
    with shown() as page:
        configuration = page.locator("details", has_text="Configuration")
        assert not configuration.locator("pre").is_visible()
        configuration.locator("summary").click()
        assert configuration.locator("pre").is_visible()


def test_printing_opens_everything(shown):
    with shown() as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
