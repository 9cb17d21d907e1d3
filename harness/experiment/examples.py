"""The experiments that come with this program, by name: in experiments/ of a checkout, or inside the package of a
wheel."""

import json
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness.errors import ExitCode
from harness.terminal import say
from r2ccl_core.text_file import is_file, is_folder, is_there

_HERE = Path(__file__).resolve().parent.parent
FOLDERS = (_HERE / "experiments", _HERE.parent / "experiments")
"""The folders that may hold them; the first that exists is used."""


def folder() -> Path:
    """The folder that holds them."""
    return next((place for place in FOLDERS if place.is_dir()), FOLDERS[-1])


def named(name: str) -> Path:
    """The file of one of them, whether it exists or not."""
    return folder() / f"{name}.toml"


def found(file: Path) -> Path:
    """`file`; if it does not exist, the example experiment of that name, such as ``allreduce``. So of a bare name that
    is a folder's here, as ``faults`` in a checkout."""
    is_bare_folder = not file.suffix and is_folder(file)
    if len(file.parts) != 1 or (is_there(file) and not is_bare_folder):
        return file
    own = named(file.name.removesuffix(".toml"))
    return own if is_file(own) else file


def hint(file: Path) -> str:
    """The remedy if `file` does not exist."""
    close = get_close_matches(file.stem, [path.stem for path in folder().glob("*.toml")], n=1)
    return f"did you mean {close[0]}?" if close else "`harness experiments` lists those that come with this program"


def list_experiments(as_json: bool) -> ExitCode:
    """Prints them, for people or as JSON."""
    known = list(_known())
    if as_json:
        print(json.dumps(known, indent=1))
        return ExitCode.OK
    say("harness sweep NAME runs one; a copy of its file is a place to start from.")
    for one in known:
        say("")
        say(one["name"], style="bold")
        say(f"    {one['description']}")
        say(f"    {one['file']}", indent="    ")
    return ExitCode.OK


def _known() -> Iterator[dict[str, Any]]:
    for path in sorted(folder().glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        yield {
            "name": path.stem,
            "description": tomllib.loads(text).get("description", ""),
            "file": str(path),
        }
