"""Named network namespaces, as `ip netns` shows them, and work done inside one.

In Linux a namespace belongs to a thread: work in a namespace gets a new thread that enters it and ends there, so that
no other thread of the harness ever changes its namespace.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

DIRECTORY = Path("/run/netns")
CLONE_NEWNET = 0x40000000
MS_BIND, MS_REC, MS_SHARED, MNT_DETACH = 0x1000, 0x4000, 1 << 20, 2

_libc = ctypes.CDLL(None, use_errno=True)


def path_of(name: str) -> Path:
    """The path at which the namespace of that name is mounted."""
    return DIRECTORY / name


def names() -> list[str]:
    """All named namespaces, ours or not."""
    return sorted(p.name for p in DIRECTORY.iterdir()) if DIRECTORY.is_dir() else []


def create(name: str, prepare: Callable[[], None]) -> None:
    """Makes a namespace and runs `prepare` in it. Raises OSError."""
    _share_directory()
    path_of(name).touch(mode=0o444, exist_ok=False)

    def work() -> None:
        _check(_libc.unshare(CLONE_NEWNET), f"unshare for {name}")
        _mount(f"/proc/self/task/{threading.get_native_id()}/ns/net", path_of(name), MS_BIND)
        prepare()

    _in_thread(work)


def remove(name: str) -> None:
    """Unmounts and removes a namespace; the kernel ends it with its last process. Harmless twice."""
    path = path_of(name)
    _libc.umount2(os.fsencode(path), MNT_DETACH)
    path.unlink(missing_ok=True)


def inside(name: str, work: Callable[[], T]) -> T:
    """The result of `work`, done by a thread in the namespace `name`. Raises what it raises, and OSError."""

    def enter_and_work() -> T:
        fd = os.open(path_of(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(fd, CLONE_NEWNET), f"enter {name}")
        finally:
            os.close(fd)
        return work()

    return _in_thread(enter_and_work)


def _in_thread(work: Callable[[], T]) -> T:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as e:
            future.set_exception(e)

    thread = threading.Thread(target=run, name="in a namespace")
    thread.start()
    thread.join()
    return future.result()


def _share_directory() -> None:
    """Makes the directory a shared mount, as `ip netns add` does, so that unmounting reaches everywhere."""
    DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
    if _libc.mount(b"", os.fsencode(DIRECTORY), b"none", MS_SHARED | MS_REC, None) != 0:
        _mount(str(DIRECTORY), DIRECTORY, MS_BIND | MS_REC)
        _mount("", DIRECTORY, MS_SHARED | MS_REC)


def _mount(source: str, target: Path, flags: int) -> None:
    _check(_libc.mount(source.encode(), os.fsencode(target), b"none", flags, None), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
