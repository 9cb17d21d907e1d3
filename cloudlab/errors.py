"""Every error that cloudlab raises deliberately: a manifest that cannot become an inventory.

    UsageError                (r2ccl_core.errors) exit code 2
    └── ManifestError         one line per finding: file, place, what is wrong, remedy

Any other exception is a bug and keeps its traceback.
"""

from collections.abc import Sequence

from r2ccl_core.errors import UsageError


class ManifestError(UsageError):
    """A manifest cannot be used; the text has one line for each of `findings`, each starting with the file."""

    def __init__(self, source: str, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(f"{_one_line(source)}: {_one_line(finding)}" for finding in findings))


def _one_line(text: str) -> str:
    """`text` without characters that would break a line or a terminal: a manifest may contain anything."""
    return "".join(char if char.isprintable() else "?" for char in text)
