"""The page in a real browser: tables sort, trials open, nothing is fetched, nothing complains."""

from collections.abc import Iterator

import pytest
from chromium_page import ChromiumPage, chromium
from synthetic_run import make_run

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


def test_the_page_is_no_wider_than_a_small_screen(page: ChromiumPage) -> None:
    page.send("Emulation.setDeviceMetricsOverride", width=1024, height=800, deviceScaleFactor=1, mobile=False)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1024
