"""What a fault costs between two iterations: a system may end the one that is hit and hang before the next begins, as
gloo does in the barrier between them. Pure.

Time between iterations is no iteration's, and varies with what else the machine does: counted in full, it adds as much
to what placebo trials seem to lose as their iterations do. So a pause counts only where nothing but the fault explains
it, by the rule for stops that begin late (`reports.recovery`): it is longer than the longest healthy iteration and the
longest healthy pause together. Of 102 placebo trials one had such a pause, of 35 ms beside 1229 ms of iterations; gloo
hung for 1.8 s in each of 3 trials. A pause that counts does so beyond the mean of the healthy ones.

A NIC is lost once, so such a pause is beside an iteration that was hit, or it lasts until a heal begins: gloo takes its
NICs in turn, and with 5 of them hung for 0.7 s in the barrier after the next iteration. Of 44 trials of 64 KiB on a
busy machine, 9 had others, up to 2.3 s after the loss and of up to 211 ms in all, and none had one of these. Any other
fault may hold up any pause until it is healed: of gloo with 10 % of the packets lost, three lasted for 0.2 s, the last
44 s after the fault.
"""

from itertools import pairwise

from reports import stats
from reports.metrics.returned import heals_began_ns
from reports.trial import Trial


def stood_ns(trial: Trial, until_ns: float) -> float:
    """How long all pauses that the fault made lasted beyond as many healthy ones: those beside iterations that were
    hit, those in which a heal began, and those that began before `until_ns`. It is 0 without a healthy one to tell by,
    or where iterations were not timed to their ends."""
    if trial.fault is None or not trial.evidence.timed_whole:
        return 0.0
    pauses = [(one, two, two.t_ns - one.t_ns - one.duration_ns) for one, two in pairwise(trial.timed)]
    healthy = [pause_ns for _, two, pause_ns in pauses if two.t_ns <= trial.fault.t_before_ns]
    over_ns = [i.duration_ns for i in trial.timed if i.phase == "before"]
    if not healthy or not over_ns:
        return 0.0
    heals_ns = heals_began_ns(trial)
    usual_ns, most_ns = stats.mean(healthy), max(healthy) + max(over_ns)
    since = (
        pause_ns
        for one, two, pause_ns in pauses
        if two.t_ns > trial.fault.t_before_ns
        and (
            "hit" in (one.phase, two.phase)
            or one.t_ns + one.duration_ns < until_ns
            or any(one.t_ns + one.duration_ns < began_ns <= two.t_ns for began_ns in heals_ns)
        )
    )
    return float(sum(pause_ns - usual_ns for pause_ns in since if pause_ns > most_ns))
