"""Closes the group's sockets in a forked child.

A child inherits its parent's sockets but none of its threads. If it kept them, peers would mistake its exit for the
parent's, and the parent's death would go unnoticed while the child lives. The core's own sockets close themselves
(`CloseInChildren`, net/socket.h).
"""

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """What a process has and its children must not use."""

    def abandon(self) -> None:
        """In a forked child, before it continues: releases everything without a message, and without waiting."""
        ...


_ours: "weakref.WeakSet[Inherited]" = weakref.WeakSet()


def not_for_children(thing: Inherited) -> None:
    """From now on forked children abandon `thing`."""
    _ours.add(thing)


def _abandon_all() -> None:
    for thing in list(_ours):
        thing.abandon()


os.register_at_fork(after_in_child=_abandon_all)
