"""``harness compare`` as a user runs it: table or JSON, and the exit status."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import make_run
from typer.testing import CliRunner

from harness.cluster.spec import InventorySpec
from harness.commands.cli import app
from reports.load import load_folder
from reports.machines import differences
from reports.trial import SCHEMA


def make(folder: Path, seed: int = 1) -> Path:
    return make_run(folder, sizes={1 << 20: 8}, repeats=4, counters=False, seed=seed)


def slower(folder: Path) -> Path:
    """Every iteration after the fault takes twice as long."""
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        for item in trial["iterations"]:
            if item["phase"] == "after":
                item |= {"duration_ns": 2 * item["duration_ns"], "busbw_gbs": item["busbw_gbs"] / 2}
        path.write_text(json.dumps(trial))
    return folder


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compare", *map(str, words)])
    return result.exit_code, result.output


def test_runs_alike_are_fine_and_a_slower_one_is_not(tmp_path: Path) -> None:
    base, new, worse = make(tmp_path / "a"), make(tmp_path / "b", 2), slower(make(tmp_path / "c", 3))
    assert run(base, new)[0] == 0
    status, text = run(base, worse)
    assert status == 1
    assert "regression" in text
    assert "after_gbs (GB/s)" in text
    status, text = run(base, worse, "--json")
    assert status == 1
    found = [f for f in json.loads(text)["findings"] if f["conclusion"] == "regression"]
    assert {(f["metric"], f["system"]) for f in found} >= {("after_gbs", "balance"), ("slowdown", "hot_repair")}


def on(folder: Path, **cluster: object) -> Path:
    """The run, of another cluster."""
    document = json.loads((folder / "run.json").read_text())
    document["experiment"]["cluster"] |= cluster
    (folder / "run.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("cluster", [{"rate": "1 Gbit/s"}, {"nics": 8}, {"delay": "1 ms"}])
def test_runs_on_different_networks_are_shown_and_not_judged(tmp_path: Path, cluster: dict[str, object]) -> None:
    base, worse = make(tmp_path / "a"), on(slower(make(tmp_path / "b", 3)), **cluster)
    status, text = run(base, worse)
    assert status == 3
    assert text.splitlines()[-1] == (
        f"No speed is judged, as the clusters differ in {next(iter(cluster))}. Whether NEW is worse is unknown (exit "
        "status 3): run both on one cluster."
    )
    assert "regression" not in text and "after_gbs (GB/s)" in text
    status, text = run(f"{base}@balance", f"{worse}@balance", "--json")
    values = json.loads(text)
    assert (status, values["regressions"]) == (3, 0) and any(f["change"] for f in values["findings"])
    speeds = [f for f in values["findings"] if f["metric"] not in ("wrong", "unexpected")]
    assert {finding["conclusion"] for finding in speeds} == {"on another network"}
    assert run(base, on(slower(make(tmp_path / "c", 3)), python="python3.12"))[0] == 1, "another Python is judged"


def of_inventory(
    rate: str | None = "25 Gbit/s", nic: str = "eth1", last: str = "c63", rails: int = 2
) -> dict[str, object]:
    """The cluster of a stored run on existing hosts, so many that one line cannot show them."""
    nics = [
        {"rail": r, "name": nic if r == 0 else f"eth{r + 1}"} | ({"rate": rate} if rate else {}) for r in range(rails)
    ]
    hosts = [{"name": name, "address": name, "nics": nics} for name in (*(f"c{n}" for n in range(63)), last)]
    content = {"schema": 1, "host": hosts}
    spec = InventorySpec.model_validate({"inventory": "hosts.toml", "content": content})
    return spec.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (of_inventory("100 Gbit/s"), "rate"),
        (of_inventory(nic="ens2f0"), "nics"),
        (of_inventory(rails=1), "nics"),
        (of_inventory(last="spare"), "hosts"),
        (of_inventory() | {"inventory": "the_same.toml"}, ""),
        (of_inventory("25000 Mbit/s"), ""),
        (of_inventory(None), ""),
    ],
)
def test_inventories_are_looked_into(tmp_path: Path, other: dict[str, object], what: str) -> None:
    base, worse = on(make(tmp_path / "a"), **of_inventory()), on(slower(make(tmp_path / "b", 3)), **other)
    status, text = run(base, worse)
    assert status == (3 if what else 1)
    assert "content" not in text and (f"the clusters differ in {what}. " in text) == bool(what)


@pytest.mark.parametrize(
    ("rate", "told"), [("500 Mbit/s", ""), ("25 Gbit/s", "rate: 0.5 Gbit/s (a), 25 Gbit/s (b)"), (None, "")]
)
def test_the_rate_of_an_inventory_is_compared_with_that_of_a_local_cluster(
    tmp_path: Path, rate: str | None, told: str
) -> None:
    base, other = make(tmp_path / "a"), make(tmp_path / "b", 3)
    folders = {"a": base, "b": on(other, **of_inventory(rate))}
    runs = [replace(load_folder(folder), label=label) for label, folder in folders.items()]
    found = {each.what: each.told() for each in differences(runs)}
    assert found.get("rate", "").removeprefix("cluster: ") == told and "not known" not in found.get("rate", "")


def test_one_network_may_be_written_in_two_ways(tmp_path: Path) -> None:
    base = make(tmp_path / "a")
    for name, cluster in {"rate": {"rate": "0.5Gbit/s"}, "delay": {"delay": "0 ms"}}.items():
        status, text = run(base, on(slower(make(tmp_path / name, 3)), **cluster))
        assert status == 1 and "differ in" not in text, text


def test_no_network_excuses_wrong_elements(tmp_path: Path) -> None:
    base, new = make(tmp_path / "a"), on(make(tmp_path / "b", 2), rate="1 Gbit/s")
    for path in new.glob("trials/*balance*/trial.json"):
        trial = json.loads(path.read_text())
        trial["iterations"][-1]["wrong"] = 3
        path.write_text(json.dumps(trial))
    status, text = run(base, new)
    assert status == 1
    assert text.splitlines()[-1].startswith("No speed is judged, as the clusters differ in rate. No network excuses")


def test_a_system_that_is_gone_is_neither_a_pass_nor_a_failure(tmp_path: Path) -> None:
    base, new = make(tmp_path / "a"), make(tmp_path / "b", 2)
    for path in new.glob("trials/*balance*/trial.json"):
        path.unlink()
    status, text = run(base, new)
    assert status == 3
    assert "not run in NEW." in text.splitlines()[-2] and "NEW is worse is unknown" in text.splitlines()[-1]


def lose_what_followed(folder: Path) -> None:
    """The fault, in every trial of a run."""
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        path.write_text(json.dumps(trial | {"iterations": [i for i in trial["iterations"] if i["phase"] != "after"]}))


def test_a_measure_that_new_lacks_is_not_known_and_no_regression(tmp_path: Path) -> None:
    base, new, rules = make(tmp_path / "a"), make(tmp_path / "b", 2), tmp_path / "rules.toml"
    lose_what_followed(new)
    rules.write_text('[[rule]]\nmetric = "after_gbs"\ntolerance = "5 %"\n[[rule]]\nmetric = "wrong"\ntolerance = 0\n')
    status, text = run(base, new, "--rules", rules)
    assert "not measured in NEW" in text and "regressions" not in text.splitlines()[-2]
    assert status == 3
    values = json.loads(run(base, new, "--rules", rules, "--json")[1])
    assert values["regressions"] == 0 < sum(f["conclusion"] == "not measured in NEW" for f in values["findings"])


def test_counts_do_not_speak_for_measures_without_repeats(tmp_path: Path) -> None:
    base = make_run(tmp_path / "a", sizes={1 << 20: 8}, repeats=1, counters=False)
    new = make_run(tmp_path / "b", sizes={1 << 20: 8}, repeats=1, counters=False, seed=2)
    assert run(base, new)[0] == 3


def test_counts_do_not_speak_for_measures_that_one_side_lacks(tmp_path: Path) -> None:
    """Systems of one run were fine where two runs were unknown: one that stopped has no measure after its fault."""
    one, other = (make_run(tmp_path / name, sizes={1 << 20: 8}, repeats=1, counters=False) for name in "ab")
    told = "Only counts could be judged: no measure has enough repeats on both sides."
    for new in (one, other):
        status, text = run(f"{one}@failstop", f"{new}@balance")
        assert status == 3
        assert text.splitlines()[-2] == told and "Whether NEW is worse is unknown" in text.splitlines()[-1]
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nmetric = "wrong"\ntolerance = 0\n')
    assert run(f"{one}@failstop", f"{one}@balance", "--rules", rules)[0] == 0, "only counts were asked for"


def test_a_system_that_no_longer_stops_is_no_regression(tmp_path: Path) -> None:
    base = make(tmp_path)
    status, text = run(f"{base}@failstop", f"{base}@balance", "--json")
    found = [f for f in json.loads(text)["findings"] if f["metric"] == "error_after_ms"]
    assert [f["conclusion"] for f in found] == ["no error in NEW"]
    assert status == 0


def test_two_systems_of_one_run_are_compared_in_pairs(tmp_path: Path) -> None:
    base = make(tmp_path)
    status, text = run(f"{base}@balance", f"{base}@hot_repair", "--json")
    assert status == 1
    found = json.loads(text)["findings"]
    assert {f["system"] for f in found} == {"balance to hot_repair"}
    assert all(f["change"]["paired"] for f in found if f["change"])


@pytest.mark.parametrize(("systems", "code"), [('"hot_repair"', 1), ('"balance", "auto"', 1), ('"auto"', 2)])
def test_a_rule_of_one_of_two_systems_speaks_of_their_comparison(tmp_path: Path, systems: str, code: int) -> None:
    base, rules = make(tmp_path), tmp_path / "rules.toml"
    rules.write_text(f'[[rule]]\nmetric = "after_gbs"\ntolerance = "5 %"\nsystems = [{systems}]\n')
    status, text = run(f"{base}@balance", f"{base}@hot_repair", "--rules", rules)
    assert status == code
    assert ("no rule matches anything" in text) == (code == 2)


def test_a_measure_that_is_known_in_base_alone_is_a_finding_not_a_mistake(tmp_path: Path) -> None:
    """Rules of other measures were not there to save it."""
    base, new, rules = make(tmp_path / "a"), make(tmp_path / "b", 2), tmp_path / "rules.toml"
    lose_what_followed(new)
    rules.write_text('[[rule]]\nmetric = "after_gbs"\ntolerance = "5 %"\n')
    status, text = run(base, new, "--rules", rules)
    assert status == 3 and "not measured in NEW" in text


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ('metric = "after_gbs"\nsizes = ["3MiB"]', "no rule matches anything that"),
        ('metric = "after_gbs"\nsystems = ["balanec"]', "no rule matches anything that"),
        ('metric = "steps_lost"', "not both have a value that a rule names (steps_lost)"),
    ],
)
def test_a_rule_that_matches_nothing_says_so(tmp_path: Path, rule: str, told: str) -> None:
    base, new, rules = make(tmp_path / "a"), make(tmp_path / "b", 2), tmp_path / "rules.toml"
    rules.write_text(f"[[rule]]\ntolerance = 0\n{rule}\n")
    status, text = run(base, new, "--rules", rules)
    assert status == 2
    assert told in text.splitlines()[-1]


def test_a_system_that_no_run_has_is_told(tmp_path: Path) -> None:
    base, rules = make(tmp_path), tmp_path / "rules.toml"
    rule = '[[rule]]\nmetric = "after_gbs"\ntolerance = "5 %"\nsystems = ["{}"]\n'
    rules.write_text(rule.format("balance") + rule.format("balanec"))
    text = run(f"{base}@balance", f"{base}@hot_repair", "--rules", rules)[1]
    assert "no run has the system 'balanec', which a rule names" in text
    assert "'balance'" not in text


def test_machines_that_differ_are_said_to_differ(tmp_path: Path) -> None:
    base, new = make(tmp_path / "a"), make(tmp_path / "b", 2)
    path = new / "run.json"
    path.write_text(path.read_text().replace("A processor", "Another processor"))
    text = run(base, new)[1]
    assert "BASE and NEW differ in machine: cpu: A processor (BASE), Another processor (NEW)" in text
    assert "come from different machines" in text


def test_names_are_text_whatever_they_hold(tmp_path: Path) -> None:
    base, new = make(tmp_path / "a"), make(tmp_path / "b", 2)
    for folder in (base, new):
        for path in list(folder.glob("trials/*/trial.json")):
            trial = json.loads(path.read_text())
            names = {key: f"[red]\x1b[31m{trial[key]}" for key in ("system", "trial_id")}
            path.write_text(json.dumps(trial | names))
            path.parent.rename(path.parent.with_name(names["trial_id"]))
    status, text = run(base, new)
    assert status == 0
    assert "[red]" in text
    assert "\x1b" not in text


def cut(folder: Path) -> None:
    for path in folder.glob("trials/*/trial.json"):
        path.write_bytes(path.read_bytes()[:-30])


def newer(folder: Path) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))


def other(folder: Path) -> None:
    for path in folder.glob("trials/*/trial.json"):
        path.write_text(path.read_text().replace("float32", "float16"))


@pytest.mark.parametrize(
    ("harm", "told"),
    [(cut, "none of its 12 trials can be read"), (newer, "newer than this program"), (other, "nothing in common")],
)
def test_runs_that_cannot_be_compared_are_a_mistake_of_usage(
    tmp_path: Path, harm: Callable[[Path], None], told: str
) -> None:
    base, new = make(tmp_path / "a"), make(tmp_path / "b", 2)
    harm(new)
    status, text = run(base, new)
    assert status == 2
    assert told in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("sides", "told"),
    [
        (("{run}", "{run}"), "are the same"),
        (("{run}@balance", "{run}"), "on both sides"),
        (("{run}@balance", "{run}@ring"), "has no system 'ring'; it has failstop"),
        (("{run}@ring", "{run}"), "has no system 'ring'; it has failstop"),
        (("{run}@ring", "{run}@ring"), "has no system 'ring'; it has failstop"),
        (("{run}", "nowhere"), "give the folder of a run"),
    ],
)
def test_sides_that_make_no_sense_are_one_line(tmp_path: Path, sides: tuple[str, str], told: str) -> None:
    made = make(tmp_path)
    status, text = run(*(side.format(run=made) for side in sides))
    assert status == 2
    assert told in text
    assert text.count("\n") == 1


def test_a_broken_rules_file_is_told_before_anything_else(tmp_path: Path) -> None:
    (rules := tmp_path / "rules.toml").write_text("[[rule]")
    for sides in ((tmp_path, tmp_path), (f"{tmp_path}@a", tmp_path), (tmp_path / "nowhere", tmp_path)):
        status, text = run(*sides, "--rules", rules)
        assert status == 2 and text.count("\n") == 1
        assert f"{rules}: is not valid TOML" in text


def test_a_table_that_does_not_fit_is_lines_of_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, worse = make(tmp_path / "a"), slower(make(tmp_path / "c", 3))
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(base, worse)[1].splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(line.strip() for line in lines)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text and "\N{BOX DRAWINGS LIGHT VERTICAL}" not in text
    assert "1MiB balance, after_gbs: " in text and "GB/s" in text and "tolerated, repeats 4, 4: regression" in text


def simulated(folder: Path, *systems: str) -> Path:
    """The run, with its numbers of `systems` (none: of all) from the simulator."""
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        if not systems or trial["system"] in systems:
            trial["evidence"]["simulated"] = {"bound_s": 0.1}
            path.write_text(json.dumps(trial))
    return folder


@pytest.mark.parametrize(
    ("of", "told"),
    [
        ((), "balance (simulated) to hot_repair (simulated)"),
        (("hot_repair",), "balance to hot_repair (simulated)"),
        (("balance",), "balance (simulated) to hot_repair"),
    ],
)
def test_a_simulated_system_goes_by_its_own_name_and_is_told_as_simulated(
    tmp_path: Path, of: tuple[str, ...], told: str
) -> None:
    folder = simulated(make(tmp_path / "a"), *of)
    (rules := tmp_path / "rules.toml").write_text(
        '[[rule]]\nmetric = "after_gbs"\ntolerance = "5 %"\nsystems = ["hot_repair"]\n'
    )
    for more in ((), ("--rules", rules)):
        status, text = run(f"{folder}@balance", f"{folder}@hot_repair", "--json", *more)
        assert status in (0, 1) and {finding["system"] for finding in json.loads(text)["findings"]} == {told}


def test_a_run_that_was_measured_and_one_that_was_simulated_say_why_they_have_nothing_in_common(tmp_path: Path) -> None:
    base, new = make(tmp_path / "a"), simulated(make(tmp_path / "b", 2))
    status, text = run(base, new)
    assert status == 2 and text.count("\n") == 1
    assert "have the same systems, measured in one and simulated in the other" in text and "RUN@SYSTEM" in text
    _, text = run(f"{base}@balance", f"{new}@balance", "--json")
    assert {finding["system"] for finding in json.loads(text)["findings"]} == {"balance to balance (simulated)"}


def test_elements_that_a_simulated_side_cannot_check_leave_nothing_open(tmp_path: Path) -> None:
    """The advice was to run the missing trials, and the exit status could never be 0."""
    measured, folder = make(tmp_path / "a", 4), simulated(make(tmp_path / "b", 4))
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        path.write_text(json.dumps(trial | {"iterations": [i | {"wrong": None} for i in trial["iterations"]]}))
    status, text = run(f"{measured}@balance", f"{folder}@balance")
    assert status == 0 and "not simulated in NEW" in text and "run the missing trials" not in text
    status, text = run(f"{folder}@balance", f"{measured}@balance")
    assert status == 0 and "not simulated in BASE" in text


def trained(folder: Path, weights: str, **provenance: object) -> Path:
    """A run of two healthy trials of training that ended with these weights."""
    steps = [
        {
            "iteration": i,
            "phase": "before",
            "t_ns": 10 * i,
            "duration_ns": 9,
            "measures": {"loss": 5.0 - i, "tokens": 9.0},
        }
        for i in range(4)
    ]
    for scenario in ("healthy_before", "healthy_after"):
        about = {
            "trial_id": f"balance-{scenario}-r0",
            "system": "balance",
            "scenario": scenario,
            "mode": 2,
            "repeat": 0,
        }
        ended = {"attempt": 1, "status": "ok", "expected": True, "result": {"weights": weights}}
        of_it = {"workload": "training", "operation": "training of a GPT", "counts": "steps"}
        trial = {"schema": SCHEMA, **about, **ended, **of_it, "iterations": steps}
        path = folder / "trials" / str(about["trial_id"]) / "trial.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(trial))
    experiment = {"name": "t", "workload": {"kind": "training", "seed": 0}, "sweep": {"repeats": 1}}
    record = {"schema": SCHEMA, "experiment": experiment, "started": "2026-01-01T00:00:00Z", "finished": "x"}
    (folder / "run.json").write_text(json.dumps(record | {"provenance": provenance}))
    return folder


def test_weights_that_changed_in_every_trial_are_a_regression_where_machine_and_experiment_are_the_same(
    tmp_path: Path,
) -> None:
    base, same = trained(tmp_path / "a", "aa", commit="1"), trained(tmp_path / "b", "aa", commit="2")
    other = trained(tmp_path / "c", "bb", commit="2")
    assert run(base, same)[0] != 1
    status, text = run(base, other)
    assert status == 1 and "weights_differ" in text
    assert run(f"{base}@balance", f"{other}@balance")[0] == 1
    elsewhere = trained(tmp_path / "d", "bb", cpu="another")
    newer = trained(tmp_path / "e", "bb", commit="1", versions={"torch": "9"})
    assert [run(base, new)[0] == 1 for new in (elsewhere, newer)] == [False, False]


def test_a_comparison_says_where_weights_are_held_against_none(tmp_path: Path) -> None:
    skipped = "Final weights of healthy trials are not compared with those of BASE"
    base, other = trained(tmp_path / "a", "aa"), trained(tmp_path / "b", "bb")
    elsewhere = trained(tmp_path / "c", "bb", cpu="another", versions={"torch": "9"})
    assert skipped not in run(base, other)[1]
    assert f"{skipped}, as the runs differ in machine (cpu), program (torch)." in run(base, elsewhere)[1]
    assert json.loads(run(base, elsewhere, "--json")[1])["weights_not_compared"]
    for path in [*elsewhere.glob("trials/*/trial.json")]:
        second = path.parent.with_name(path.parent.name.replace("balance", "auto")) / "trial.json"
        second.parent.mkdir()
        second.write_text(path.read_text().replace("balance", "auto"))
    assert f"{skipped}: two systems may add in another order." in run(f"{elsewhere}@balance", f"{elsewhere}@auto")[1]
    one = next((base / "trials").glob("*after*/trial.json"))
    one.write_text(one.read_text().replace('"aa"', '"cc"'))
    assert f"{skipped} for balance: those of BASE are not the same in all trials." in run(base, other)[1]
    for trial in base.glob("trials/*/trial.json"):
        trial.write_text(json.dumps(json.loads(trial.read_text()) | {"result": {}}))
    assert f"{skipped} for balance: BASE has none." in run(base, other)[1]
    assert skipped not in run(make(tmp_path / "d"), make(tmp_path / "e", 2))[1], "a collective has none"
