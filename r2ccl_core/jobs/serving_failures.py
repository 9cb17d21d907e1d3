"""The cost to a request when its replica loses a NIC in the middle of its answer, by the service's reaction.

    restart      the replica starts again, and the request from its beginning
    reroute      another replica computes the prompt and all tokens so far again
    dejavu       caches were streamed to a neighbour all the time; it takes them back and goes on (ICML '24)
    hot_repair, balance, auto   the transport moves the traffic; the request waits for the pause

The times to notice and to start are assumptions that a `Recovery` states. Published for DejaVu on OPT-66B, one failure:
1.24 times the latency where a plain service takes 1.91; that engine is not among the fits, so it has no row here.
"""

from dataclasses import dataclass
from typing import Literal

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.serving import Engine, latency

Redone = Literal["everything", "tokens", "cache", "nothing"]


@dataclass(frozen=True)
class Recovery:
    """``notice_s`` until the loss is known, ``start_s`` until somebody can continue, what is repeated, and by how much
    every token is slower without any failure (``streaming``)."""

    name: str
    notice_s: float
    start_s: float
    redone: Redone
    streaming: float = 0.0


RECOVERIES = (
    Recovery("restart", 34.0, 120.0, "everything"),
    Recovery("reroute", 5.0, 0.0, "tokens"),
    Recovery("dejavu", 3.0, 0.0, "cache", streaming=0.02),
    Recovery("hot_repair", 1.2, 0.0, "nothing"),
    Recovery("balance", 1.2, 0.0, "nothing"),
    Recovery("auto", 0.2, 0.0, "nothing"),
)


def request_s(
    engine: Engine, network: Network, recovery: Recovery, *, prompt: int, generated: int, at: float | None
) -> float:
    """Seconds of one request; the loss comes after the part ``at`` of its tokens (None: never)."""
    if generated < 1 or (at is not None and not 0.0 <= at <= 1.0):
        raise UsageError(f"{generated} tokens, a loss at {at}: give a token or more, and 0 to 1")
    one = latency(engine, network, prompt=prompt)
    token_s = one.token_ms / 1e3 * (1 + recovery.streaming)
    whole_s = one.first_ms / 1e3 + generated * token_s
    if at is None:
        return whole_s
    done = round(at * generated)
    again_s = {
        "everything": one.first_ms / 1e3 + done * token_s,
        "tokens": (engine.prefill_ms + engine.prefill_token_ms * (prompt + done)) / 1e3,
        "cache": network.point_to_point_s(1, 0, (prompt + done) * engine.cache_bytes),
        "nothing": 0.0,
    }[recovery.redone]
    return whole_s + recovery.notice_s + recovery.start_s + again_s
