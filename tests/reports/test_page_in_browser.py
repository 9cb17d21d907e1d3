"""The page in a real browser, headless: it sorts a table, opens a trial, fetches nothing, logs no error."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from synthetic_run import make_run

from reports.report import write_report

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--dump-dom",
)  # fmt: skip

# Runs in the page after its own script; what it finds is left in the title, which --dump-dom shows.
PROBE = """
const table = document.querySelector("#table table");
const column = [...table.tHead.rows[0].cells].findIndex((c) => c.textContent.startsWith("T/T0"));
const shown = () => [...table.tBodies[0].rows].map((r) => r.cells[column].dataset.sort);
table.tHead.rows[0].cells[column].click();
const up = shown();
table.tHead.rows[0].cells[column].click();
const down = shown();
const trial = document.querySelector("details.trial:not([open])");
trial.querySelector("summary").click();
const images = [...document.images].map((i) => i.decode().then(() => 1, () => 0));
Promise.all(images).then((ok) => {
  const fetched = performance.getEntriesByType("resource").filter((e) => !e.name.startsWith("data:")).length;
  const drawn = Math.min(...ok);
  document.title = JSON.stringify({ up, down, open: trial.open, fetched, errors: window.errors, drawn });
});
"""
WATCH = "window.errors = 0; addEventListener('error', () => window.errors++);" + (
    "addEventListener('securitypolicyviolation', () => window.errors++);"
)


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="needs chromium")
def test_the_page_works_in_a_browser(tmp_path: Path) -> None:

    folder = make_run(tmp_path, repeats=2, sizes={1 << 20: 4, 8 << 20: 4})
    text = write_report(folder).read_text(encoding="utf-8")
    for script in (WATCH, PROBE):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        text = text.replace("script-src ", f"script-src &#39;sha256-{digest}&#39; ", 1)
    text = text.replace("<title>", f"<script>{WATCH}</script><title>", 1)
    text = text.replace("</body>", f"<script>{PROBE}</script></body>")
    page = tmp_path / "probe.html"
    page.write_text(text, encoding="utf-8")
    command = [CHROMIUM, *QUIET, "--virtual-time-budget=5000", f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None, done.stderr[-2000:]
    found = json.loads(html.unescape(title.group(1)))
    known = [float(v) for v in found["up"] if v]
    assert known == sorted(known)
    assert len(known) == 4
    assert [float(v) for v in found["down"] if v] == known[::-1]
    # What is missing stays last, whichever way the column is sorted.
    assert found["up"][-2:] == found["down"][-2:] == ["", ""]
    assert (found["open"], found["fetched"], found["errors"], found["drawn"]) == (True, 0, 0, 1)
