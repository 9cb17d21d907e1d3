"""How a rank continues its session over a new stream: three records of fixed size, as bytes. Pure.

    rank 0    CHALLENGE  magic, version, nonce
    member    RESUME     magic, version, rank, attempt, frames taken, ticket, nonce, proof
    rank 0    RESUMED    magic, frames taken, proof

Rank 0 gave out the group's ticket at the rendezvous; a rank of another group has another ticket. Proofs are digests of
both nonces and of all fields, under the shared secret. `attempt` grows with every stream, so that an overtaken stream
never replaces a later one.
"""

import struct
from typing import NamedTuple

from r2ccl_core.control.proof import equal, prove

MAGIC = b"R2BR"
VERSION = 1
_CHALLENGE = struct.Struct("!4sH16s")
_RESUME = struct.Struct("!4sHIIQ16s16s32s")
_RESUMED = struct.Struct("!4sQ32s")
CHALLENGE_BYTES, RESUME_BYTES, RESUMED_BYTES = _CHALLENGE.size, _RESUME.size, _RESUMED.size
TICKET_BYTES = 16


class Resume(NamedTuple):
    """A member's record: its rank, its stream, and how many of rank 0's frames it has taken."""

    rank: int
    attempt: int
    taken: int


class Keys(NamedTuple):
    """What identifies the group."""

    ticket: bytes
    secret: str


def challenge(nonce: bytes) -> bytes:
    """Rank 0's first record."""
    return _CHALLENGE.pack(MAGIC, VERSION, nonce)


def read_challenge(record: bytes) -> bytes | None:
    """Its nonce; None for a stranger's."""
    magic, version, nonce = _CHALLENGE.unpack(record)
    return bytes(nonce) if (magic, version) == (MAGIC, VERSION) else None


def resume(keys: Keys, what: Resume, theirs: bytes, own: bytes) -> bytes:
    """The member's record; `theirs` is the challenge's nonce."""
    return _RESUME.pack(MAGIC, VERSION, *what, keys.ticket, own, _proof(keys, b"resume", what, theirs, own))


def read_resume(keys: Keys, record: bytes, own: bytes) -> tuple[Resume, bytes] | None:
    """What the member says, and its nonce; None for a stranger's."""
    magic, version, rank, attempt, taken, ticket, theirs, proof = _RESUME.unpack(record)
    what = Resume(rank, attempt, taken)
    known = (magic, version) == (MAGIC, VERSION) and equal(ticket, keys.ticket)
    return (what, theirs) if known and equal(proof, _proof(keys, b"resume", what, own, theirs)) else None


def resumed(keys: Keys, what: Resume, taken: int, own: bytes, theirs: bytes) -> bytes:
    """Rank 0's answer: how many of the member's frames it has taken."""
    return _RESUMED.pack(MAGIC, taken, _proof(keys, b"resumed", what._replace(taken=taken), own, theirs))


def read_resumed(keys: Keys, what: Resume, record: bytes, theirs: bytes, own: bytes) -> int | None:
    """How many frames rank 0 has taken; None for a stranger's record."""
    magic, taken, proof = _RESUMED.unpack(record)
    known = magic == MAGIC and equal(proof, _proof(keys, b"resumed", what._replace(taken=taken), theirs, own))
    return int(taken) if known else None


def _proof(keys: Keys, role: bytes, what: Resume, root_nonce: bytes, member_nonce: bytes) -> bytes:
    return prove(keys.secret, role, root_nonce, member_nonce, keys.ticket, struct.pack("!IIQ", *what))
