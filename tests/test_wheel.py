"""What a wheel holds is enough: away from the checkout the commands work, and the experiments are there by name.

The wheel is made without its compiled parts, which takes seconds; those are of the environment that tests. With
R2CCL_TEST_WHEEL=1 it is the whole one, as `pip wheel .` makes it.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from harness.experiment.examples import folder
from r2ccl_core import native

ROOT = Path(__file__).resolve().parent.parent
WHOLE = os.environ.get("R2CCL_TEST_WHEEL") == "1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was unpacked."""
    place = tmp_path_factory.mktemp("wheel")
    words = ["--no-deps", "--quiet", "--disable-pip-version-check", "--wheel-dir", str(place / "made")]
    words += [] if WHOLE else ["--config-settings=wheel.cmake=false", "--config-settings=wheel.py-api=py3"]
    words += ["--no-build-isolation"] if importlib.util.find_spec("scikit_build_core") else []
    made = subprocess.run([sys.executable, "-m", "pip", "wheel", str(ROOT), *words], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    [wheel] = (place / "made").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place / "site")
    if not WHOLE:
        shutil.copy(Path(str(native.load().__file__)), place / "site" / "r2ccl_core")
    return place / "site"


def harness(site: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With nothing of this checkout on the path: the packages below, and what they depend on."""
    code = (
        f"import sys; sys.path[:0] = [{str(site)!r}, {sysconfig.get_path('purelib')!r}]\n"
        "import harness; from harness.commands.start import main; main()"
    )
    argv = [sys.executable, "-I", "-S", "-c", code, *words]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=270, check=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_works_without_a_checkout(site: Path, tmp_path: Path) -> None:
    listed = harness(site, tmp_path, "experiments", "--json")
    shipped = json.loads(listed.stdout)
    assert {one["name"] for one in shipped} == {path.stem for path in folder().glob("*.toml")}
    assert all(Path(one["file"]).is_relative_to(site) for one in shipped)
    dry = harness(site, tmp_path, "sweep", "allreduce", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "") and "python -m r2ccl_core.perf all_reduce" in dry.stdout
    words = ["--set=workload.backend=simulate", "--set=sweep.repeats=1", "--only=system=balance,size=1MiB"]
    swept = harness(site, tmp_path, "sweep", "allreduce", *words)
    assert swept.returncode == 0, swept.stdout + swept.stderr
    assert list(tmp_path.glob("runs/allreduce-*/report.html"))
    assert harness(site, tmp_path, "--version").stdout.startswith("harness ")


def test_what_runs_on_hosts_and_what_reports_are_made_of_is_inside(site: Path) -> None:
    for name in ("harness/cluster/survey.py", "reports/templates/page.css", "harness/py.typed"):
        assert (site / name).is_file(), name
    assert not list(site.rglob("CMakeLists.txt")) and not list(site.rglob("*.cc"))
