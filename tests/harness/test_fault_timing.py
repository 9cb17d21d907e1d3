"""When a fault fires: which iteration is struck, how long it should last, and the moment."""

import math
import re
from pathlib import Path

import pytest

from harness.errors import ExitCode
from harness.events import Timed
from harness.experiment.file import load
from harness.sweep.command import Options, sweep_command
from harness.sweep.dry_run import lines
from harness.sweep.fault_timing import (
    FIRST_LATENCY_NS,
    Latencies,
    chosen_begin_ns,
    expected_ns,
    fire_at_ns,
    is_near,
    lead_of,
    shortest_ns,
)
from harness.sweep.plan import Trial, plan
from harness.sweep.run_folder import RunFolder
from harness.systems.damping import held_until_s

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ALLREDUCE, SMOKE = EXPERIMENTS / "allreduce.toml", EXPERIMENTS / "smoke.toml"
S = 1_000_000_000
MS = 1_000_000


def trial(when: str) -> Trial:
    return plan(load(ALLREDUCE, [f'fault=[{{kind="nic_down", host="host0", nic="eth0", {when}}}]']))[0]


@pytest.mark.parametrize(
    ("when", "begun", "chosen"),
    [
        ("at_iteration=2", {-1: 1, 0: 5, 1: 9}, None),
        ("at_iteration=2", {-1: 1, 0: 5, 1: 9, 2: 14}, 14),
        ('at_time="2s"', {-1: S}, None),
        ('at_time="2s"', {-1: S, 0: 2 * S, 1: 3 * S}, None),
        ('at_time="2s"', {-1: S, 0: 2 * S, 1: 3 * S, 2: 4 * S, 3: 5 * S}, 4 * S),
        ('at_time="0s"', {0: 2 * S}, 2 * S),
    ],
)
def test_the_iteration_that_is_struck(when: str, begun: dict[int, int], chosen: int | None) -> None:
    made = trial(when)
    assert made.fault is not None
    assert chosen_begin_ns(made, made.fault, begun) == chosen


@pytest.mark.parametrize(
    ("when", "begun", "duration_ms", "near"),
    [
        ("at_iteration=5", {}, 200, False),
        ("at_iteration=5", {-1: 2 * S, 0: 3 * S}, 200, False),  # it begins in 1 s or later
        ("at_iteration=5", {-1: 2 * S, 0: 3 * S}, 199, True),
        ("at_iteration=5", {4: 3 * S}, 2000, False),  # the one before it goes on for another 2 s
        ("at_iteration=5", {4: S + 500 * MS}, 2000, True),
        ("at_iteration=5", {5: 3 * S}, 2000, True),
        ("at_iteration=2", {-1: 3 * S}, 300, True),  # during the warm-up
        ('at_time="2s"', {-1: 3 * S}, 100, False),
        ('at_time="2s"', {0: 2 * S}, 100, False),
        ('at_time="2s"', {0: 2 * S - 1}, 100, True),
        ('at_time="0.5s"', {-1: 3 * S}, 100, True),
    ],
)
def test_when_the_iteration_to_hit_is_near(when: str, begun: dict[int, int], duration_ms: int, near: bool) -> None:
    made = trial(when)
    assert made.fault is not None
    assert is_near(made, made.fault, begun, duration_ms * MS, 3 * S) == near


def test_how_long_an_iteration_should_last() -> None:
    warm, first, second, third = (Timed(0, duration, None) for duration in (900, 100, 140, 120))
    assert expected_ns({}, 0.5) == S // 2
    assert expected_ns({-1: warm}, 0.5) == 900
    assert expected_ns({-1: warm, 0: first, 1: second, 2: third}, 0.5) == 120


def test_how_long_an_iteration_takes_at_least() -> None:
    warm, first = Timed(0, 900 * MS, None), Timed(0, 100 * MS, None)
    assert shortest_ns({}, 0.5) == S // 2
    assert shortest_ns({-1: warm}, 0.5) == S // 2
    assert shortest_ns({-1: warm, 0: first}, 0.5) == 100 * MS


def test_the_moment_allows_for_the_latency() -> None:
    assert fire_at_ns(1000, 0.3, 100, 10) == 1020
    assert fire_at_ns(1000, 0.3, 100, 50) == 980


@pytest.mark.parametrize(
    ("duration_ms", "latency_ms", "lead"), [(500, 3, 0), (60, 3, 0), (8, 3, 1), (2, 3, 3), (0, 3, 0)]
)
def test_short_iterations_are_decided_on_ahead(duration_ms: int, latency_ms: int, lead: int) -> None:
    assert lead_of(0.3, duration_ms * MS, latency_ms * MS) == lead


def test_with_a_lead_the_rhythm_tells_the_begin() -> None:
    made = trial("at_iteration=4")
    assert made.fault is not None
    begun = {-1: 0, 0: 100, 1: 110, 2: 121}
    assert chosen_begin_ns(made, made.fault, begun, lead=1) is None
    assert chosen_begin_ns(made, made.fault, begun | {3: 131}, lead=1) == 141
    assert chosen_begin_ns(made, made.fault, begun, lead=2) == 142


def test_without_a_rhythm_there_is_no_lead() -> None:
    made = trial("at_iteration=2")
    assert made.fault is not None
    assert chosen_begin_ns(made, made.fault, {0: 1, 1: 2}, lead=1) is None
    assert chosen_begin_ns(made, made.fault, {0: 1, 1: 2, 2: 3}, lead=1) == 3


def test_the_latency_of_a_kind_follows_what_is_measured_of_it() -> None:
    latencies = Latencies()
    assert latencies.expected_ns("nic_down") == FIRST_LATENCY_NS
    latencies.measured("nic_unplug", 340 * MS)
    assert latencies.expected_ns("nic_unplug") == 340 * MS
    latencies.measured("nic_down", 40 * MS)
    latencies.measured("nic_down", 60 * MS)
    assert latencies.expected_ns("nic_down") == 50 * MS, "what others take says nothing of it"
    assert latencies.expected_ns("delay") == 50 * MS, "rather late than too early"
    latencies.measured("nic_down", 60 * MS)
    latencies.measured("nic_down", 900 * MS)
    assert latencies.expected_ns("nic_down") == 60 * MS, "a machine that was busy once is no reason to fire early"
    for _ in range(3):
        latencies.measured("nic_down", 80 * MS)
    assert latencies.expected_ns("nic_down") == 80 * MS


def test_a_dry_run_warns_of_collectives_that_are_over_before_a_fault_comes() -> None:
    def warning(*settings: str) -> list[str]:
        experiment = load(SMOKE, ['workload.sizes=["64KiB"]', *settings])
        return [line for line in lines(experiment, plan(experiment)) if "may be over" in line]

    assert warning('workload.min_duration="0 s"') == [
        "warning: the collectives of 3 trials with a fault (64KiB) may be over before it comes; "
        'set workload.min_duration = "0.5 s"'
    ]
    assert not warning(), "by default there are more of them"
    assert not warning('workload.min_duration="0.5 s"')
    assert not warning('workload.min_duration="0.5 s"', 'workload.sizes=["4"]'), "the advice is enough at every size"
    assert not warning("fault=[]")
    assert not warning("workload.backend=simulate")
    assert not warning('workload.sizes=["16MiB"]', "workload.iterations=5"), "few, but each lasts"


def dry(tmp_path: Path, fault: str) -> tuple[str, list[str]]:
    """What a dry run says, and its warnings, where the iterations take 0.7 s."""
    fault = f'{{host="host1", rail=1, name="one", {fault}}}' if "trace" not in fault else f'{{name="one", {fault}}}'
    (tmp_path / "played.csv").write_text("at,kind,host,rail\n100 ms,nic_down,host0,0\n9,nic_down,host1,1\n")
    (tmp_path / "x.toml").write_text(SMOKE.read_text())
    experiment = load(tmp_path / "x.toml", [f"fault=[{fault}]", "workload.iterations=10", "workload.min_duration=0 s"])
    told = list(lines(experiment, plan(experiment)[:1]))
    return "\n".join(told), [line for line in told if "before a failure comes" in line]


@pytest.mark.parametrize(
    ("fault", "said", "comes"),
    [
        (
            'kind="nic_down", at_time="2 s"',
            "30 % into the first iteration that begins 2 s after the first timed one: nic_down",
            "2 s",
        ),
        ('kind="nic_down", at_time="10 ms"', "begins 0.01 s after the first timed one", ""),
        (
            'kind="nic_down", at_time="10 ms", also=[{kind="nic_down", host="host0", rail=0, after="5 s"}]',
            "5 s later: nic_down on host0",
            "5.01 s",
        ),
        ('trace="played.csv"', "9 s after the first timed iteration begins: nic_down on host1", "9 s"),
        ('kind="nic_down", mtbf="50 ms", mttr="10 ms"', "s after the first timed iteration begins, healed", ""),
        ('kind="nic_down", at_progress=0.9', "30 % into iteration 9", ""),
    ],
)
def test_a_dry_run_tells_of_a_failure_that_comes_when_all_is_over(
    tmp_path: Path, fault: str, said: str, comes: str
) -> None:
    told, warned = dry(tmp_path, fault)
    assert said in told
    assert [f"it comes {comes} after the first begins; choose an earlier time" in line for line in warned] == [True] * (
        comes != ""
    ), warned


def test_short_collectives_with_faults_last_until_a_fault_can_come() -> None:
    def planned(*settings: str) -> tuple[set[int], list[str]]:
        experiment = load(SMOKE, ['workload.sizes=["64KiB"]', *settings])
        trials = plan(experiment)
        told = [line for line in lines(experiment, trials) if line.startswith("note: ")]
        return {trial.iterations for trial in trials}, told

    more, told = planned("sweep.healthy=blocks")
    assert more == planned('workload.min_duration="0.5 s"')[0] == {912}, "healthy trials, too: they are compared"
    assert told == [
        "note: iterations are added, so that a fault hits short ones and is over before they are: "
        "64KiB has 912 iterations; workload.min_duration changes that"
    ]
    mixed = 'axis=[{key="workload.collective", values=["all_reduce", "all_gather"]}]'
    counts, (one,) = planned(mixed)
    assert len(counts) == 2 and f": 64KiB has {min(counts)} to {max(counts)} iterations; " in one
    as_written = {8}, []
    assert planned("fault=[]") == planned('workload.min_duration="0 s"') == as_written
    assert planned("workload.backend=simulate") == as_written, "no fault has to be aimed"
    assert planned('workload.sizes=["8MiB"]') == as_written, "each is long"
    assert planned("workload.iterations=500") == ({500}, []), "these last 0.27 s as they are"


def test_a_dry_run_warns_of_a_fault_that_outlasts_its_trial() -> None:
    def warning(*settings: str) -> list[str]:
        experiment = load(SMOKE, ["fault.lasts=1 s", *settings])
        return [line for line in lines(experiment, plan(experiment)) if "lasts longer" in line]

    assert warning('workload.min_duration="0.5 s"') == [
        "warning: the fault lasts longer than what follows it of 3 trials (8MiB), which end before the repair, and "
        "what systems lose until then does not compare; set "
        'workload.min_duration = "2 s", or a shorter lasts'
    ]
    assert not warning('workload.min_duration="2 s"')
    assert not warning('workload.min_duration="1.5 s"') and warning('workload.min_duration="1.2 s"'), "0.28 s before"
    assert not warning('workload.min_duration="0.5 s"', 'workload.sizes=["4"]', "fault.lasts=400 ms")
    assert not warning(), "by default there are enough iterations"
    assert warning("fault.lasts=20 s"), "unless a trial's limit leaves them no room"
    assert not warning("fault.lasts=100 ms", 'workload.min_duration="0.5 s"')


def test_a_dry_run_advises_no_trial_that_is_longer_than_its_limit() -> None:
    """It advised 181.3 s where a trial may last 120."""

    def advice(*settings: str) -> str:
        late = 'fault=[{kind="nic_down", host="host1", rail=1, at_progress=0.95, lasts="10 s"}]'
        experiment = load(SMOKE, [late, *settings])
        (told,) = [line for line in lines(experiment, plan(experiment)) if "lasts longer" in line]
        return told.partition("does not compare; ")[2]

    assert advice("sweep.limits.trial=300 s") == 'set workload.min_duration = "213.5 s", or a shorter lasts'
    assert advice() == (
        "to see more takes 213.5 s, and sweep.limits.trial is 120 s; choose an earlier moment, or a shorter lasts"
    )


THRICE = 'fault=[{kind="nic_down", host="host1", rail=1, at_progress=0.5, lasts="150 ms", times=3, every="500 ms"}]'


def test_a_dry_run_warns_of_trials_that_end_while_our_core_holds_the_nic_back() -> None:
    """It told that a NIC which it had lost three times would carry nothing for 7352 ms, and the trials ended in 1.7."""

    def warning(*settings: str) -> list[str]:
        experiment = load(SMOKE, [THRICE, *settings])
        return [line for line in lines(experiment, plan(experiment)) if "holds back a NIC" in line]

    (told,) = warning()
    assert told.startswith("warning: our core holds back a NIC that it lost often, here until 7.4 s after the repair: ")
    assert told.endswith(
        '2 trials (8MiB) may end before that, and lose more than is seen; set workload.min_duration = "17.2 s", or '
        "fewer losses, or system.env.R2CC_FLAP_HALF_LIFE_MS = 0, which holds none back"
    )
    assert not warning('workload.min_duration="17.2 s"') and warning('workload.min_duration="16.5 s"')
    assert "choose an earlier moment" in warning("sweep.limits.trial=15 s")[0]
    assert not warning("system.env.R2CC_FLAP_HALF_LIFE_MS=0") and not warning("fault[0].times=2")
    assert not warning("workload.backend=torch_gloo") and not warning("workload.backend=simulate")
    assert not warning("cluster.nics=1", "fault[0].rail=0"), "the last path is never held"
    assert not warning('fault[0].kind="delay"'), "no path is lost"
    flap = 'kind="flap", host="host1", rail=1, at_progress=0.5, lasts="1 s"'
    for parameters, held in (('period="200 ms"', True), ('period="600 ms"', False)):
        assert bool(warning(f"fault=[{{{flap}, parameters={{{parameters}}}}}]")) == held
    again = 'fault=[{{kind="nic_down", host="host1", rail=1, at_progress=0.5, lasts="0.1 s", also=[{}]}}]'
    also = '{{kind="nic_down", host="host1", rail={}, after="{} ms", lasts="0.1 s"}}'
    assert warning(again.format(", ".join(also.format(1, ms) for ms in (200, 400))))
    assert not warning(again.format(", ".join(also.format(0, ms) for ms in (200, 400)))), "once, and another one twice"


@pytest.mark.parametrize(
    ("losses_s", "env", "until_s"),
    [
        ([0, 1], {}, 0),
        ([0, 1, 2], {}, 2 + 4 * math.log2(2548 / 750)),
        # Measured: a NIC that flapped for 1.01 s carried again 10.38 s later, one lost thrice was to wait for 7.35 s.
        ([0, 0.2, 0.4, 0.6, 0.8], {}, 11.39),
        ([0.002, 0.507, 1.005], {}, 1.1675 + 7.352),
        ([0, 1, 2, 62], {}, 0),  # the last one is long after
        ([0, 1, 2], {"R2CC_FLAP_HALF_LIFE_MS": "0"}, 0),
        ([0, 1, 2], {"R2CC_FLAP_SUPPRESS": "3000"}, 0),
        ([0, 1, 2], {"R2CC_FLAP_MAX_MS": "5000"}, 7),
    ],
)
def test_how_long_a_nic_is_held_back_is_what_the_core_says(
    losses_s: list[float], env: dict[str, str], until_s: float
) -> None:
    assert held_until_s(losses_s, env) == pytest.approx(until_s, abs=0.05)


@pytest.mark.parametrize(
    ("fault", "iterations"),
    [
        ('at_progress=0.5, lasts="400 ms"', 31),
        ('at_iteration=4, lasts="400 ms"', 20),
        ('at_time="1 s", lasts="400 ms"', 30),
        ('at_iteration=4, lasts="100 ms", times=3, every="400 ms"', 27),
        ('at_iteration=4, also=[{kind="nic_down", host="host0", rail=0, after="500 ms"}]', 21),
        ('at_iteration=4, lasts="20 s"', 8),
        ("at_iteration=4", 8),
        ('mtbf="1 s", mttr="400 ms"', 8),
    ],
)
def test_a_trial_goes_on_until_its_faults_are_over_and_0_6_s_more(fault: str, iterations: int) -> None:
    """Eight iterations of 70 ms are asked for; faults that a trial's limit leaves no room for add none."""
    experiment = load(SMOKE, [f'fault=[{{kind="nic_down", host="host1", rail=1, {fault}}}]', "sweep.healthy=blocks"])
    assert {trial.iterations for trial in plan(experiment)} == {iterations}, "healthy trials, too: they are compared"
    short = experiment.model_copy(update={"workload": experiment.workload.model_copy(update={"min_duration_s": 0.0})})
    assert short.iterations_of(8 << 20) == 8


def test_a_dry_run_warns_of_a_healthy_part_that_does_not_grow_with_the_trial() -> None:
    def warning(*settings: str) -> list[str]:
        experiment = load(SMOKE, ['workload.sizes=["64KiB"]', 'workload.min_duration="0.5 s"', *settings])
        return [line for line in lines(experiment, plan(experiment)) if line.startswith("warning")]

    assert warning() == [
        "warning: min_duration adds iterations to 3 trials (64KiB), but none before the fault's at_iteration, and "
        "those before it say what healthy is; write at_progress = 0.5 instead"
    ]
    assert not warning("fault=[]") and not warning("workload.iterations=1000")
    fault = '{{name="at{0}", kind="nic_down", host="host1", rail=1, at_iteration={0}}}'
    for several in ([12], [0], [3, 5]):  # at_progress is less than 1, and one value does not serve two iterations
        all_told = warning(f"fault=[{', '.join(map(fault.format, several))}]")
        (told,) = [line for line in all_told if "min_duration" in line]
        assert told.endswith("; write at_progress, such as 0.5, instead")
    assert not warning('fault=[{kind="nic_down", host="host1", rail=1, at_progress=0.5}]')


def test_a_sweep_begins_with_the_warnings_of_its_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends_at_once(request: object, folder: RunFolder, *_: object) -> ExitCode:
        folder.release()
        return ExitCode.OK

    monkeypatch.setattr("harness.sweep.command.run_sweep", ends_at_once)
    words = ["cluster.kind=noop", "workload.backend=noop", 'workload.min_duration="0.5 s"', "fault.kind=noop"]
    told = {}
    for is_dry in (True, False):
        assert sweep_command(SMOKE, ['workload.sizes=["64KiB"]', *words], [], Options(tmp_path, dry_run=is_dry)) == 0
        told[is_dry] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert told[False] == told[True]
    assert [line for line in told[False] if line.startswith("warning: min_duration adds iterations to 3 trials")]


def test_a_dry_run_warns_of_a_limit_that_is_over_before_our_core_gives_up() -> None:
    def warning(*settings: str) -> list[str]:
        isolated = 'fault=[{kind="host_isolate", host="host1", at_progress=0.5}]'
        experiment = load(SMOKE, [isolated, *settings])
        return [line for line in lines(experiment, plan(experiment)) if "gives up" in line]

    assert not warning(), "by default it has the time"
    assert warning("sweep.limits.iteration=8 s") == [
        "warning: sweep.limits.iteration, 8 s, ends 2 trials before our core gives up a host that no NIC reaches, "
        "after 10 s; set it to 13 s or more, or lower system.env.R2CC_FAILOVER_GIVE_UP_MS"
    ]
    assert "sweep.limits.trial, 9 s, ends 2" in warning("sweep.limits.trial=9 s")[0]
    assert not warning("sweep.limits.iteration=8 s", "system.env.R2CC_FAILOVER_GIVE_UP_MS=4000")
    assert not warning("sweep.limits.iteration=8 s", "workload.backend=torch_gloo")
    assert not warning("sweep.limits.iteration=8 s", "fault[0].lasts=2 s")
    one_nic = 'fault=[{kind="nic_down", host="host1", rail=1, at_progress=0.5}]'
    assert not warning("sweep.limits.iteration=8 s", one_nic)
    both = 'fault[0].also=[{kind="blackhole", host="host1", rail=0, after="50 ms"}]'
    assert warning("sweep.limits.iteration=8 s", one_nic, both)
    assert not warning("sweep.limits.iteration=8 s", one_nic, both, "fault[0].lasts=6 s"), "one NIC is back in time"
    assert warning("sweep.limits.iteration=8 s", one_nic, both, "fault[0].lasts=11 s")
    in_turn = 'fault[0].also=[{kind="nic_down", host="host1", rail=0, after="12 s", lasts="11 s"}]'
    assert not warning("sweep.limits.iteration=8 s", one_nic, in_turn, "fault[0].lasts=11 s"), "never both"
    assert not warning("sweep.limits.iteration=8 s", one_nic, in_turn, "fault[0].lasts=20 s"), "both for 8 s"
    assert warning("sweep.limits.iteration=8 s", one_nic, in_turn, "fault[0].lasts=22 s"), "both for 10 s"


def test_a_dry_run_warns_of_a_fault_that_takes_a_hosts_only_nic_from_a_system_that_is_to_go_on() -> None:
    def warning(*settings: str) -> list[str]:
        experiment = load(SMOKE, ["fault.rail=0", *settings])
        return [line for line in lines(experiment, plan(experiment)) if "only NIC" in line]

    assert warning("cluster.nics=1") == [
        "warning: the fault takes the only NIC of host1 in 2 trials, after which no system goes on, and balance is "
        "expected to; give hosts two NICs or more, or the fault a lasts"
    ]
    assert not warning("cluster.nics=1", "fault.lasts=100 ms")
    assert not warning("cluster.nics=1", "fault.expect=failed")
    assert "in 1 trial," in warning("cluster.nics=1", 'fault.expect={balance = "failed"}')[0]
    assert not warning("cluster.nics=1", 'fault.expect={balance = "failed", hot_repair = "failed"}')
    assert not warning("cluster.nics=1", "fault.kind=delay")
    assert not warning("cluster.nics=2")


def test_a_dry_run_warns_of_requests_without_a_healthy_trial_to_compare_with() -> None:
    def warning(*settings: str) -> list[str]:
        experiment = load(EXPERIMENTS / "serving.toml", settings)
        return [line for line in lines(experiment, plan(experiment)) if "no healthy trial" in line]

    (told,) = warning("sweep.healthy=off")
    assert told.startswith("warning: ") and 'set sweep.healthy = "ends"' in told
    assert not warning() and not warning("sweep.healthy=off", "fault=[]")


def test_a_dry_run_warns_of_trials_that_cannot_end_in_time() -> None:
    def warning(*settings: str) -> list[str]:
        experiment = load(EXPERIMENTS / "smoke.toml", ["workload.iterations=100", *settings])
        return [line for line in lines(experiment, plan(experiment)) if "sweep.limits.trial" in line]

    (told,) = warning("sweep.limits.trial=2s", "sweep.limits.iteration=2s")
    assert re.search(r"^warning: \d trials \(8MiB\) may be cut off by sweep.limits.trial, 2 s", told)
    limit_s = re.search(r"set it to (\d+) s", told)
    assert limit_s is not None and not warning(f"sweep.limits.trial={limit_s[1]}s", "sweep.limits.iteration=2s")
    assert not warning("sweep.limits.trial=2s", "sweep.limits.iteration=2s", "workload.backend=simulate")


def test_a_dry_run_warns_of_faults_that_need_virtual_machines() -> None:
    def warning(*settings: str) -> list[str]:
        experiment = load(EXPERIMENTS / "smoke.toml", settings)
        return [line for line in lines(experiment, plan(experiment)) if "virtual machines" in line]

    (told,) = warning("fault.kind=cable_pull")
    assert re.search(r"^warning: the sweep will refuse \d trials with cable_pull, .* cluster.kind = \"vms\"", told)
    assert warning('fault.also=[{kind="nic_unplug", host="host0", rail=0, after="1 s"}]')
    assert not warning() and not warning("fault.kind=cable_pull", "workload.backend=simulate")
    assert not warning("fault.kind=cable_pull", "cluster.kind=vms")


def test_a_dry_run_warns_of_a_fault_on_a_nic_that_its_system_never_uses() -> None:
    """gloo: barriers between the collectives take turns with them, so that an even number of NICs has every collective
    on the same half."""

    def warning(*settings: str) -> list[str]:
        experiment = load(EXPERIMENTS / "torch_gloo.toml", ["fault.rail=1", *settings])
        return [line for line in lines(experiment, plan(experiment)) if "none of its collectives" in line]

    assert warning() == [
        "warning: 2 trials of gloo will be inconclusive: the fault hits host1 eth1, which carries none of its "
        "collectives; write rail = 0 instead"
    ]
    assert "write rail = 0 or 2 instead" in warning("cluster.nics=4")[0]
    assert "host1 eth1" in warning("fault.kind=switch_outage")[0], "on every host"
    assert not warning("cluster.nics=3"), "every NIC has its turn"
    assert warning("cluster.nics=3", "workload.collective=sendrecv"), "messages take no turn"
    assert not warning("fault.rail=0") and not warning("system=[{use='balance'}]")
    busiest = 'fault=[{kind="nic_down", host="host1", nic="busiest", at_progress=0.5}]'
    assert not warning(busiest) and not warning(
        busiest.replace("nic_down", "host_isolate").replace(', nic="busiest"', "")
    )
    drawn = warning(busiest.replace("busiest", "random"), "sweep.repeats=40")
    assert 5 < int(drawn[0].split()[1]) < 35, "those that are drawn on it"
