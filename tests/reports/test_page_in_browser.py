"""The page in a real browser: tables sort, trials open, nothing is fetched, nothing complains."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium_page import ChromiumPage, chromium
from served_trials import trial
from synthetic_run import make_run, stored_run

from reports.report import write_report

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason="no chromium on this machine")]

HOSTILE = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromiumPage]:
    folder = make_run(tmp_path_factory.mktemp("runs"), sizes={1 << 20: 8, 8 << 20: 6}, repeats=2)
    path = folder / "run.json"
    path.write_text(path.read_text().replace("One of three NICs goes down", HOSTILE.replace('"', "'")))
    with ChromiumPage(chromium() or "", tmp_path_factory.mktemp("profile")) as opened:
        opened.open(write_report(folder))
        yield opened


def column(page: ChromiumPage, heading: str) -> list[str]:
    """The texts of one column of the table by size and system."""
    script = f"""(() => {{ const table = document.querySelector('#table table');
      const at = [...table.tHead.rows[0].cells].findIndex(c => c.textContent.startsWith('{heading}'));
      return [...table.tBodies[0].rows].map(r => r.cells[at].textContent.trim()); }})()"""
    return [str(text) for text in page.evaluate(script)]


def click(page: ChromiumPage, heading: str) -> None:
    page.evaluate(
        f"[...document.querySelectorAll('#table th')].find(c => c.textContent.startsWith('{heading}')).click()"
    )


def test_a_table_sorts_by_a_click_and_back(page: ChromiumPage) -> None:
    click(page, "size")
    assert column(page, "size") == ["1MiB"] * 3 + ["8MiB"] * 3
    click(page, "size")
    assert column(page, "size") == ["8MiB"] * 3 + ["1MiB"] * 3


def test_numbers_sort_as_numbers_and_missing_ones_come_last(page: ChromiumPage) -> None:
    click(page, "T/T0")
    texts = column(page, "T/T0")
    known = [float(text.split()[0]) for text in texts if text[0].isdigit()]
    assert known == sorted(known)
    assert all(not text[0].isdigit() for text in texts[len(known) :])
    assert len(known) == 4


def test_every_trial_opens_and_its_timeline_is_a_picture(page: ChromiumPage) -> None:
    assert page.evaluate("document.querySelectorAll('details.trial').length") == 12
    page.evaluate("document.querySelectorAll('details.trial:not([open]) > summary').forEach(s => s.click())")
    assert page.evaluate("[...document.querySelectorAll('details.trial')].every(d => d.offsetHeight > 100)")
    decoded = page.evaluate("Promise.all([...document.images].map(i => { i.loading = 'eager'; return i.decode(); }))")
    assert decoded is not None
    assert page.evaluate("document.images.length >= 10 && [...document.images].every(i => i.naturalWidth > 300)")


def test_names_are_text_never_markup(page: ChromiumPage) -> None:
    assert page.evaluate("document.title").startswith("allreduce")
    assert "onerror=alert(1)" in page.evaluate("document.body.innerText")
    assert page.evaluate("document.querySelector('[onerror]') === null")


def test_nothing_is_fetched_and_nothing_complains(page: ChromiumPage) -> None:
    assert [url.rpartition("/")[2] for url in page.requests()] == ["report.html"]
    assert page.complaints() == []


@pytest.mark.parametrize("width", [1024, 420])
def test_the_page_is_no_wider_than_a_small_screen(page: ChromiumPage, width: int) -> None:
    page.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # What is wider lies in a box that scrolls, and can be reached.
    wider = """[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1
      && !e.closest('.wide, details:not([open])')).map(e => e.outerHTML.slice(0, 80))"""
    assert page.evaluate(wider) == []
    assert page.evaluate("getComputedStyle(document.querySelector('.wide')).overflowX") == "auto"


@pytest.mark.usefixtures("undrawn")
def test_what_requests_measured_makes_no_page_wider_than_its_screen(tmp_path: Path) -> None:
    folder = stored_run(tmp_path, "served", trial("dies", [2_611_425_246.0] * 5))
    with ChromiumPage(chromium() or "", tmp_path / "profile") as served:
        served.open(write_report(folder))
        served.evaluate("document.querySelectorAll('.trial, .inner').forEach(d => { d.open = true; })")
        assert served.evaluate("document.querySelectorAll('.inner tbody tr').length") == 6
        for width in (420, 1366):
            served.send(
                "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
            )
            assert served.evaluate("document.documentElement.scrollWidth") <= width
        box = "document.querySelector('.inner .wide')"
        assert served.evaluate(f"{box}.scrollWidth <= {box}.clientWidth + 1"), "on a usual screen it is whole"


def test_on_a_usual_screen_the_table_of_all_numbers_is_whole(page: ChromiumPage) -> None:
    page.send("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    assert page.evaluate("(t => t.scrollWidth <= t.clientWidth)(document.querySelector('#table .wide'))")
    # A number, its interval, of which a long one is broken once, and the model.
    assert page.evaluate("Math.max(...[...document.querySelectorAll('#table tbody tr')].map(r => r.offsetHeight))") < 75


HINT = "e => getComputedStyle(e, '::before').content.includes('Scroll sideways')"
"""Whether a place says that it scrolls."""
WRONG = f"""[...document.querySelectorAll('.wide')].filter(e => e.checkVisibility())
  .filter(e => (e.scrollWidth > e.clientWidth + 1) !== ({HINT})(e)).length"""
"""How many places say so and do not scroll, or scroll and do not say so."""
ALL_NUMBERS = "document.querySelector('#table .wide')"


def settle(page: ChromiumPage, width: int) -> None:
    """Makes the window so wide, and waits until the page has seen it."""
    page.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
    page.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")


def test_the_first_table_fits_and_what_does_not_says_that_it_scrolls(page: ChromiumPage) -> None:
    for width in (1366, 1000):
        settle(page, width)
        assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#first .wide'))"), width
        assert page.evaluate(WRONG) == 0, width
    page.send("Emulation.clearDeviceMetricsOverride")


def test_a_wide_note_in_the_first_table_breaks_no_number(page: ChromiumPage) -> None:
    """The note has the width that the numbers leave; it took theirs."""
    cells = "[...document.querySelectorAll('#first tbody tr:first-child td.n')]"
    page.evaluate(f"window.kept = {cells}.map(c => c.innerHTML)")
    try:
        told = "(at < 2 ? '0.0441 to 0.127' : '208 to 801 ms')"
        note = "(at === 2 ? '<span class=ci>' + 'no comparable '.repeat(9) : '')"
        numbers = f"'<strong>' + {told} + '</strong>' + {note}"
        page.evaluate(f"{cells}.forEach((c, at) => {{ c.innerHTML = {numbers}; }})")
        settle(page, 1280)
        lines = f"Math.max(...{cells}.map(c => c.querySelector('strong').getClientRects().length))"
        assert page.evaluate(lines) == 1
        assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#first .wide'))")
    finally:
        page.evaluate(f"{cells}.forEach((c, at) => {{ c.innerHTML = window.kept[at]; }})")
        page.send("Emulation.clearDeviceMetricsOverride")


BROKEN = """[...document.querySelectorAll('#first tbody td.n strong')].flatMap(e => {
  const text = [...e.childNodes].find(n => n.nodeType === 3), words = text ? [...text.data.matchAll(/\\S+/g)] : [];
  return words.filter(w => { const r = document.createRange(); r.setStart(text, w.index);
    r.setEnd(text, w.index + w[0].length); return new Set([...r.getClientRects()].map(b => b.top)).size > 1; })
    .map(w => w[0]); })"""
"""The words of the first table's numbers that are broken over lines."""


@pytest.mark.parametrize("dense", [False, True])
def test_no_number_of_the_first_table_is_broken(page: ChromiumPage, dense: bool) -> None:
    """Below 1200 px a number was broken inside where the columns had no room."""
    cells = "[...document.querySelectorAll('#first tbody td.n')]"
    table = "document.querySelector('table.overview')"
    page.evaluate(f"window.kept = {cells}.map(c => c.innerHTML)")
    try:
        page.evaluate(f"{table}.classList.toggle('dense', {str(dense).lower()})")
        numbers = "'<strong>0.00441278 to 0.127134</strong><span class=ci>' + 'no comparable '.repeat(at) + '</span>'"
        page.evaluate(f"{cells}.forEach((c, at) => {{ c.innerHTML = {numbers}; }})")
        for width in (1366, 1000, 700, 420):
            settle(page, width)
            assert page.evaluate(BROKEN) == [], width
            lines = f"Math.max(...{cells}.map(c => c.querySelector('strong').getClientRects().length))"
            assert width < 600 or dense or page.evaluate(lines) == 1, width
            assert page.evaluate(WRONG) == 0, "what is wider says that it scrolls"
        settle(page, 718)  # A4 without its margins
        page.send("Emulation.setEmulatedMedia", media="print")
        assert page.evaluate(BROKEN) == []
    finally:
        page.send("Emulation.setEmulatedMedia", media="")
        page.evaluate(f"{cells}.forEach((c, at) => {{ c.innerHTML = window.kept[at]; }})")
        page.evaluate(f"{table}.classList.remove('dense')")
        page.send("Emulation.clearDeviceMetricsOverride")


def test_all_numbers_say_that_they_scroll_where_they_do_and_only_there(page: ChromiumPage) -> None:
    """On a phone they always do; on a usual screen with more columns than this run has."""
    try:
        settle(page, 420)
        assert page.evaluate(f"({HINT})({ALL_NUMBERS})") and page.evaluate(WRONG) == 0
        settle(page, 1366)
        assert not page.evaluate(f"({HINT})({ALL_NUMBERS})") and page.evaluate(WRONG) == 0
        more = f"{ALL_NUMBERS}.querySelectorAll('tr').forEach(r => r.append(...Array.from({{length: 12}}, () => "
        page.evaluate(f"{more} Object.assign(r.cells[3].cloneNode(true), {{className: 'n added'}}))))")
        settle(page, 1366)
        assert page.evaluate(f"({HINT})({ALL_NUMBERS})") and page.evaluate(WRONG) == 0
        page.evaluate(f"{ALL_NUMBERS}.scrollLeft = 1e4")
        sticks = f"getComputedStyle({ALL_NUMBERS}, '::before').position"
        assert page.evaluate(sticks) == "sticky", "it is seen also where the table is scrolled"
        page.send("Emulation.setEmulatedMedia", media="print")
        assert not page.evaluate(f"({HINT})({ALL_NUMBERS})"), "paper does not scroll"
        page.send("Emulation.setEmulatedMedia", media="")
        page.evaluate("document.querySelectorAll('.added').forEach(e => e.remove())")
        settle(page, 1366)
        assert not page.evaluate(f"({HINT})({ALL_NUMBERS})") and page.evaluate(WRONG) == 0
    finally:
        page.send("Emulation.setEmulatedMedia", media="")
        page.send("Emulation.clearDeviceMetricsOverride")


def test_on_a_telephone_the_first_table_fits_and_the_figure_has_its_own_form(page: ChromiumPage) -> None:
    picture = "document.querySelector('#first img')"
    page.send("Emulation.setDeviceMetricsOverride", width=1280, height=800, deviceScaleFactor=1, mobile=False)
    wide = page.evaluate(f"{picture}.decode().then(() => {picture}.naturalWidth / {picture}.naturalHeight)")
    page.send("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=True)
    narrow = page.evaluate(f"{picture}.decode().then(() => {picture}.naturalWidth / {picture}.naturalHeight)")
    assert narrow < 1.5 < wide
    table = "document.querySelector('table.overview')"
    assert page.evaluate(f"{table}.scrollWidth <= {table}.parentElement.clientWidth")
    assert page.evaluate(f"[...{table}.querySelectorAll('td')].every(c => c.offsetHeight > 0)")


def test_on_a_telephone_every_figure_fits_without_scrolling(page: ChromiumPage) -> None:
    page.send("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=True)
    figures = "[...document.querySelectorAll('#first figure, #figures figure')]"
    assert page.evaluate(f"{figures}.length") == 7
    assert page.evaluate(f"{figures}.every(f => f.querySelector('.wide').scrollWidth <= f.clientWidth)")
    pictures = f"Promise.all({figures}.map(f => f.querySelector('img').decode().then(() => f.querySelector('img'))))"
    assert page.evaluate(f"{pictures}.then(all => all.every(i => i.naturalWidth < 500))"), "letters are not shrunk"


def test_a_dark_page_is_dark_and_readable(page: ChromiumPage) -> None:
    def light(of: str) -> float:
        script = f"getComputedStyle(document.body).{of}.match(/[0-9]+/g).slice(0, 3).map(Number)"
        return float(sum(page.evaluate(script))) / 3 / 255

    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    assert light("backgroundColor") > 0.95 > 0.3 > light("color")
    page.send("Emulation.setEmulatedMedia", features=[scheme])
    try:
        assert light("backgroundColor") < 0.15 < 0.8 < light("color")
        page.send("Emulation.setEmulatedMedia", media="print", features=[scheme])
        assert light("backgroundColor") > 0.95, "paper is white, whatever the screen is"
    finally:
        page.send("Emulation.setEmulatedMedia", media="", features=[])


def test_on_paper_nothing_is_cut_and_the_first_figure_is_on_the_first_page(page: ChromiumPage) -> None:
    page.send("Emulation.setEmulatedMedia", media="print")
    # A4 less its margins of 12 mm, in CSS pixels.
    page.send("Emulation.setDeviceMetricsOverride", width=703, height=1032, deviceScaleFactor=1, mobile=False)
    try:
        assert page.evaluate("document.documentElement.scrollWidth") <= 703
        assert page.evaluate("[...document.querySelectorAll('.wide')].every(e => e.scrollWidth <= e.clientWidth + 1)")
        assert page.evaluate("document.querySelector('#first table').getBoundingClientRect().bottom + scrollY") < 1032
        heights = page.evaluate("[...document.querySelectorAll('#figures figure')].map(f => f.offsetHeight)")
        assert len(heights) == 6 and max(heights) <= 1032 / 2, "a page has room for two figures"
        assert page.evaluate("[...document.querySelectorAll('.trial img')].every(i => i.offsetHeight <= 1032 / 2)")
        assert hidden_headings(page) == [], "nothing is left out without a word"
        said = "Sections that were closed are printed as their headings only; the page itself holds their contents."
        assert said in page.evaluate("document.body.innerText")
        assert "Click a heading" not in page.evaluate("document.body.innerText")
    finally:
        page.send("Emulation.clearDeviceMetricsOverride")
        page.send("Emulation.setEmulatedMedia", media="")
    assert said not in page.evaluate("document.body.innerText"), "the screen has no closed section without contents"
    pages = base64.b64decode(page.send("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert pages.startswith(b"%PDF") and 1 < len(re.findall(rb"/Type\s*/Page\b", pages)) < 20


def hidden_headings(page: ChromiumPage) -> list[str]:
    """The headings of sections that are not shown, except for those in a closed section."""
    outer = "!s.parentElement.parentElement.closest('details:not([open])')"
    hidden = f"[...document.querySelectorAll('summary')].filter(s => {outer} && s.offsetHeight === 0)"
    found: list[str] = page.evaluate(f"{hidden}.map(s => s.textContent)")
    return found
