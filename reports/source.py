"""The versions of the program that made a run: an interrupted run may have been continued with another commit. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from reports.trial import Run

CONTINUED = "continued"
"""Key of a run's provenance: a list of the source of each continuation, with the time at which it began (`at`)."""


class Source(NamedTuple):
    """One version of the program; None: unknown."""

    commit: str | None
    dirty: bool | None
    digest: str | None
    """Digest of the source files, which distinguishes uncommitted changes."""


def source_of(provenance: Mapping[str, Any]) -> Source:
    """The source that a provenance, or an entry of its continuations, states; malformed values become unknown."""
    commit, dirty, digest = (provenance.get(key) for key in ("commit", "dirty", "source"))
    return Source(
        None if commit is None else str(commit),
        dirty if isinstance(dirty, bool) else None,
        digest if isinstance(digest, str) else None,
    )


def continuations(run: Run) -> list[Mapping[str, Any]]:
    """The continuations of the run, in the order of time."""
    told = run.provenance.get(CONTINUED)
    return [entry for entry in told if isinstance(entry, dict)] if isinstance(told, list) else []


def sources(run: Run) -> list[Source]:
    """Every version of the program that made trials of `run`, each once, in the order of time."""
    found: list[Source] = []
    for source in map(source_of, (run.provenance, *continuations(run))):
        if not any(_same(source, known) for known in found):
            found.append(source)
    return found


def commit_of(run: Run) -> str | None:
    """``abc``, or ``abc, later def`` for a run that was continued after a commit."""
    commits = dict.fromkeys(source.commit or "not known" for source in sources(run))
    return ", later ".join(commits) if any(source.commit for source in sources(run)) else None


def dirty_of(run: Run) -> bool | None:
    """Whether the source ever differed from its commit."""
    told = [source.dirty for source in sources(run)]
    return True if True in told else told[0] if len(set(told)) == 1 else None


def change_of(run: Run) -> str | None:
    """A line about a source that changed while `run` was interrupted; None if it did not."""
    if len(found := sources(run)) < 2:
        return None
    states = ", later ".join(dict.fromkeys(map(_text, found)))
    return f"its trials are not all of one program, whose source changed while the sweep was interrupted: {states}"


def _same(one: Source, other: Source) -> bool:
    """Older runs do not record the digest; a missing digest is no difference."""
    digests = {one.digest, other.digest} - {None}
    return one[:2] == other[:2] and len(digests) < 2


def _text(source: Source) -> str:
    digest = f" (files {source.digest})" if source.digest else ""
    return f"commit {source.commit or 'not known'}{', changed since' if source.dirty else ''}{digest}"
