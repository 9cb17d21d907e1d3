"""A serving replica whose prefill and decode hosts exchange key-value caches over the network.

Latencies are linear fits to splitwise-sim's measured rows (MIT licence; engines of 2023, newer ones are two to four
times as fast):

    prefill ms = a + b tokens in the batch        decode ms a token = c + g requests in the batch

The cache of a prompt goes from the prefill host to the decode host over all remaining NICs, so a lost NIC delays the
first token by the longer transfer; the tokens after it are computed inside a host and are not affected.
"""

from dataclasses import dataclass

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs.network import Network


@dataclass(frozen=True)
class Engine:
    """One model on the GPUs of one host: the fit, and bytes of cache per token."""

    name: str
    prefill_ms: float
    prefill_token_ms: float
    decode_ms: float
    decode_request_ms: float
    cache_bytes: int
    shortest: int = 512
    longest: int = 8192
    """Tokens of the longest measured prompt."""


ENGINES = {
    one.name: one
    for one in (
        Engine("llama-70b-h100x8", -11, 0.0996, 30.0, 0.303, 320 << 10),
        Engine("llama-70b-a100x8", -53, 0.2167, 44.5, 0.387, 320 << 10),
        Engine("bloom-176b-h100x8", -31, 0.1736, 35.7, 0.414, 3920 << 10),
    )
}


@dataclass(frozen=True)
class Latency:
    """Milliseconds to the first token, and for each one after it."""

    first_ms: float
    token_ms: float


def latency(
    engine: Engine, network: Network, *, prompt: int, requests: int = 1, prefill: int = 0, decode: int = 1
) -> Latency:
    """``requests`` prompts of this many tokens, from host ``prefill`` to host ``decode`` of the network."""
    if prompt < engine.shortest or prompt > engine.longest:
        measured = f"{engine.shortest} to {engine.longest}"
        raise UsageError(f"{engine.name}: a prompt of {prompt} tokens is outside of what was measured, {measured}")
    if requests < 1 or prefill == decode:
        raise UsageError(f"{engine.name}: one request or more, from one host to another")
    moved_s = network.point_to_point_s(prefill, decode, requests * prompt * engine.cache_bytes)
    first = engine.prefill_ms + engine.prefill_token_ms * prompt * requests + 1e3 * moved_s
    return Latency(first, engine.decode_ms + engine.decode_request_ms * requests)
