"""The served page in a real browser: it follows the sweep by itself, asks nobody else, and nothing complains."""

import time
from pathlib import Path

import pytest
from chromium_page import ChromiumPage, chromium
from served_run import Served

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason="no chromium on this machine")]


def shows(page: ChromiumPage, expression: str) -> None:
    """Waits until a JavaScript expression holds; while a page loads itself again there is none to ask."""
    for _ in range(300):
        try:
            if page.evaluate(f"document.readyState === 'complete' && ({expression})"):
                return
        except AssertionError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"never: {expression}")


def test_the_page_follows_the_sweep_by_itself(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        with ChromiumPage(chromium() or "", tmp_path / "profile") as page:
            page.open(f"{served.url}/")
            shows(page, "document.body.innerText.includes('no trial has finished')")
            served.lands()
            shows(page, "document.querySelector('#live span').textContent === '1 of 3 trials'")
            shows(page, "document.querySelectorAll('#table tbody tr').length === 1 && document.images.length === 0")
            while served.waiting:
                served.lands()
            served.finishes()
            shows(page, "document.querySelector('#live progress').value === 3 && document.images.length >= 3")
            assert page.complaints() == []
            assert {url.removeprefix(served.url) for url in page.requests()} <= {"/", "/state.json", "/favicon.ico"}
    finally:
        served.close()
