"""What a bound may speak of: every metric by its name in experiments, with its meaning and unit."""

METRICS = {
    "share": "healthy bus bandwidth over what the NICs' rate allows",
    "before_gbs": "healthy bus bandwidth, GB/s",
    "hit_gbs": "bus bandwidth of the iteration that the fault hits, GB/s",
    "after_gbs": "bus bandwidth after the fault, GB/s",
    "slowdown": "T/T0: an iteration after the fault over one before it",
    "hit_cost_ms": "what the hit iteration costs beyond one after it, ms",
    "stall_ms": "stall of the hit iteration that lost bandwidth does not explain, ms",
    "recover_ms": "from the fault until the struck host sends at its later speed, ms",
    "switch_cost_ms": "what the operation that changes the schedule costs beyond one after it, ms",
    "gap": "simulated: time over the lower bound for what is left, minus 1",
    "over_simulated": "measured over simulated time, healthy or after the fault: the one farther from 1",
    "over_schedule": "bytes that a host received over those of the schedule: the host and phase farthest from 1",
    "detect_ms": "from the fault to its first sign in any core, ms",
    "migrate_ms": "from the fault to the first chunk moved, ms",
    "return_ms": "from the heal until the NIC carries again, ms",
    "error_after_ms": "from the fault to the error, ms",
}
