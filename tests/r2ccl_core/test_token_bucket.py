"""Token buckets: what is written reads back from the kernel, and holds what a NIC hands over at once."""

import json
import os
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.cluster import namespaces, rights
from r2ccl_core.model.token_bucket import BURST_S, GSO_BYTES, TokenBucket

RATES = st.floats(min_value=1e6, max_value=400e9)
NAMESPACE = f"r2ccl-bucket-{os.getpid()}"


@given(RATES)
@example(1e6)
@example(500e6)
@example(30e9)
def test_a_bucket_and_its_queue_hold_whole_packets(rate_bit_s: float) -> None:
    bucket = TokenBucket.for_rate(rate_bit_s)
    assert bucket.rate_bytes_s == int(rate_bit_s / 8)
    assert bucket.burst_bytes >= max(2 * GSO_BYTES, bucket.rate_bytes_s * BURST_S)
    assert bucket.burst_bytes <= max(2 * GSO_BYTES, bucket.rate_bytes_s * BURST_S) + 1
    assert bucket.limit_bytes >= 4 * GSO_BYTES
    assert TokenBucket.for_rate(bucket.rate_bytes_s * 8) == bucket


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    if not rights.have():
        pytest.skip("needs the right to make network namespaces")
    namespaces.create(NAMESPACE, lambda: None)
    yield NAMESPACE
    namespaces.remove(NAMESPACE)


@pytest.mark.netns
@given(st.lists(RATES, min_size=8, max_size=8))
@example([49_999_999_992.0] * 8)
@example([1e6, 3.3e6, 10e6, 100e6, 500e6, 1e9, 10e9, 25e9, 100e9, 400e9])
@settings(max_examples=10, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_kernel_gives_back_what_was_written(namespace: str, rates: list[float]) -> None:
    buckets = [TokenBucket.for_rate(rate) for rate in rates]
    shown = namespaces.inside(namespace, lambda: [options_as_shown(bucket) for bucket in buckets])
    for bucket, options in zip(buckets, shown, strict=True):
        assert options["rate"] == bucket.rate_bytes_s
        assert 0 <= bucket.burst_bytes - options["burst"] <= 1.1e-6 * bucket.rate_bytes_s + 2, (
            "a microsecond and a tick"
        )


def options_as_shown(bucket: TokenBucket) -> dict[str, int]:
    """What the kernel says after ``tc`` has written the bucket."""
    on_lo = ("dev", "lo", "root", "handle", "2:")
    subprocess.run(["tc", "qdisc", "replace", *on_lo, *bucket.words], check=True)
    shown = subprocess.run(["tc", "-j", "qdisc", "show", "dev", "lo", "root"], capture_output=True, check=True)
    options: dict[str, int] = json.loads(shown.stdout)[0]["options"]
    return options
