"""Stands in for CloudLab's portal: runs a profile with geni-lib once for each set of parameters.

    python portal.py PROFILE.py < forms.json > answers.json

forms.json is a list of objects of parameters; an answer is {"errors": [...]} or {"rspec": "..."}. The geni-lib of the
Python package index is older than the portal's own: its print statements are Python 2,
and it writes bytes as text; both are mended here in memory.
"""

import contextlib
import importlib.util
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


def load_portal() -> ModuleType:
    """`geni.portal`, with its print statements as function calls and the request written as text."""
    import geni
    import geni.rspec.pg as pg

    spec = importlib.util.find_spec("geni.portal")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    module = importlib.util.module_from_spec(spec)
    sys.modules["geni.portal"] = geni.portal = module
    mended = re.sub(r"^(\s*)print (.+)$", r"\1print(\2)", source, flags=re.MULTILINE)
    exec(compile(mended, spec.origin, "exec"), module.__dict__)

    def write_text(self: Any, path: str) -> None:
        Path(path).write_text(self.toXMLString(True, True), encoding="utf-8")

    pg.Request.writeXML = write_text
    return module


def answer(portal: ModuleType, profile: CodeType, form: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the portal would show for one form. Any other exception of the profile goes on."""
    (folder / "form.json").write_text(json.dumps(form))
    portal.Context._instance, portal.Context._initialized = None, False
    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints):
            exec(profile, {"__name__": "__main__"})
    except SystemExit as end:
        errors = json.loads(complaints.getvalue())
        assert end.code == 100 + len(errors)
        return {"errors": errors}
    return {"rspec": (folder / "request.xml").read_text(encoding="utf-8")}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GENILIB_PORTAL_MODE"] = "1"
        os.environ["GENILIB_PORTAL_PARAMS_PATH"] = str(folder / "form.json")
        os.environ["GENILIB_PORTAL_REQUEST_PATH"] = str(folder / "request.xml")
        portal = load_portal()
        profile = compile(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[1], "exec")
        answers = [answer(portal, profile, form, folder) for form in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
