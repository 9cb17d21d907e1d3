"""Every error that reports raise deliberately: one line each, with the file and the remedy.

    R2cclError              (r2ccl_core.errors)
    └── UsageError          (r2ccl_core.errors) exit code 2
        └── ReportError     a run folder cannot be reported
            └── SchemaError a stored file is broken, or has another schema than this program's

A broken trial among good ones does not stop a report: it becomes a line of the report (`reports.load`).
"""

from r2ccl_core.errors import UsageError


class ReportError(UsageError):
    """A run folder cannot be reported; the text says which file, why, and the remedy."""


class SchemaError(ReportError):
    """A stored file is broken or has another schema version."""
