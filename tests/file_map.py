"""The file map, docs/reference/files.md: each source file with the first sentence that it says about itself.

python tests/file_map.py          prints the map
python tests/file_map.py --write  puts it there
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "reference" / "files.md"
MARK = "<!-- file map: python tests/file_map.py --write -->"
_COMMENT = {".cc": "//", ".cu": "//", ".h": "//", ".c": "//", ".sh": "#", ".toml": "#", ".js": "//"}


def source_files() -> list[str]:
    """What the map names: every source file that git tracks, without the tests."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    mapped = [path for path in listed if (ROOT / path).exists() and Path(path).suffix in {".py", *_COMMENT}]
    named = (p for p in mapped if "tests/" not in p and p != "pyproject.toml")
    return sorted(named, key=lambda path: (*Path(path).parts[:-1], "", Path(path).name))


def first_sentence(path: str) -> str:
    """Of the module docstring or the leading comment; empty where there is none."""
    text = (ROOT / path).read_text()
    if path.endswith(".py"):
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        mark = _COMMENT[Path(path).suffix]
        lines = text.removeprefix("#!/bin/sh\n").splitlines()
        comment = []
        for line in lines:
            if not line.startswith(mark):
                break
            comment.append(line.removeprefix(mark).strip())
        said = "\n".join(comment)
    paragraph = re.sub(r"\s+", " ", said.split("\n\n")[0]).strip()
    return re.split(r"(?<=[.:])\s", paragraph, maxsplit=1)[0].rstrip(".:")


def file_map() -> str:
    """The map as Markdown, one table a folder."""
    lines, folder = [], ""
    for path in source_files():
        parent, name = path.rsplit("/", 1) if "/" in path else (".", path)
        if parent != folder:
            lines += ["", f"**{parent}/**", "", "| file | what it is for |", "|---|---|"]
            folder = parent
        sentence = first_sentence(path).replace("|", "\\|")
        lines.append(f"| {name} | {sentence} |")
    return "\n".join(lines).strip() + "\n"


def written() -> str:
    """The map as the document has it."""
    return DOCUMENT.read_text().partition(MARK)[2].strip() + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        head = DOCUMENT.read_text().partition(MARK)[0]
        DOCUMENT.write_text(f"{head}{MARK}\n\n{file_map()}")
    else:
        print(file_map(), end="")
