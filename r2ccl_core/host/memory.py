"""How much memory this machine, or this container, can still provide."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def available_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP, own: Path = OWN) -> int | None:
    """The least of what the machine, this process's control group, and the groups around that one have left; None if it
    cannot be determined."""
    found = [left for folder in _folders(cgroup, own) for left in _left_in(folder)]
    with suppress(OSError):
        known = parse_available(meminfo.read_text(encoding="utf-8"))
        found += [] if known is None else [known]
    return min(found, default=None)


def parse_available(meminfo: str) -> int | None:
    """MemAvailable of /proc/meminfo in bytes."""
    lines = (line.split() for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
    return next((int(words[1]) * 1024 for words in lines if len(words) > 1 and words[1].isdigit()), None)


_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", ("inactive_file", "active_file")),
    (
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "memory.stat",
        ("total_inactive_file", "total_active_file"),
    ),
)
"""Control groups of either version: the files for the limit, the use, and the part of the use that the kernel can
reclaim."""


def _folders(cgroup: Path, own: Path) -> Iterator[Path]:
    """The control groups that limit this process, of either version; a container sees its own as the outermost."""
    paths = {"": "/", "memory": "/"}
    with suppress(OSError):
        lines = (line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines())
        for _, controllers, path in (words for words in lines if len(words) == 3):
            if not controllers or "memory" in controllers.split(","):
                paths["memory" if controllers else ""] = path
    for root, path in ((cgroup / kind, path) for kind, path in paths.items()):
        inner = root / path.lstrip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(root))


def _left_in(cgroup: Path) -> Iterator[int]:
    """The part of a control group's limit that is unused, or used only by file pages."""
    for limit_name, used_name, stat_name, returned in _GROUPS:
        with suppress(OSError, ValueError):  # "max" is none
            limit, used = (int((cgroup / name).read_text(encoding="utf-8")) for name in (limit_name, used_name))
            with suppress(OSError, ValueError):
                lines = (line.split() for line in (cgroup / stat_name).read_text(encoding="utf-8").splitlines())
                used -= sum(int(value) for name, value in lines if name in returned)
            yield max(0, limit - max(0, used))


def shown(size_bytes: int) -> str:
    """In GiB, for a message."""
    return f"{max(0, size_bytes) / 1024**3:.1f} GiB"
