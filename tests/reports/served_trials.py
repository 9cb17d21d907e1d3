"""Trials of serving with made-up times and answers: what the tests of serving reports read."""

import json
from typing import Any

from reports.trial import SCHEMA, Trial

PHASES = ["warmup", "before", "before", "hit", "after", "repaired"]
TTFT = [900.0, 200.0, 220.0, 300.0, 210.0, 205.0]


def trial(scenario: str, answers: list[float], factor: float = 1.0, **more: Any) -> Trial:
    """`factor`: how much later than in `TTFT` first tokens are."""
    healthy = scenario.startswith("healthy")
    requests = [
        {
            "iteration": i - 1,
            "phase": "before" if healthy and i else phase,
            "t_ns": 1_000_000_000 + 500_000_000 * i,
            "duration_ns": 400_000_000,
            "measures": {
                "ttft_ms": factor * ttft, "tpot_ms": 5.0, "tokens": 40.0, "answer": answer,
                "again": float(phase == "hit"), "sent_from_ms": 50.0, "sent_until_ms": 150.0,
            },
        }
        for i, (phase, ttft, answer) in enumerate(zip(PHASES, TTFT, [0.0, *answers], strict=False))
    ]  # fmt: skip
    at_ns = requests[3]["t_ns"] + 100_000_000 if len(requests) > 3 else 0  # type: ignore[operator]
    fault = {"kind": "nic_down", "host": "host1", "nic": "eth0", "t_before_ns": at_ns, "t_after_ns": at_ns + 1_000_000}
    values: dict[str, Any] = {
        "schema": SCHEMA, "trial_id": f"balance-{scenario}-r0", "system": "balance", "mode": 2, "workload": "serving",
        "operation": "serving of a GPT", "counts": "requests", "scenario": scenario, "repeat": 0, "attempt": 1,
        "status": "ok", "expected": True, "iterations": requests, "fault": None if healthy else fault,
        "result": {"answers": "aa", "wrong_tokens": "0"},
    }  # fmt: skip
    return Trial.model_validate_json(json.dumps(values | more))


ANSWERS = [11.0, 12.0, 13.0, 14.0, 15.0]
