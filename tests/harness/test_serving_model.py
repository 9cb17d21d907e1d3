"""The served model and its pages: the same tokens however they are computed, and others from other bytes."""

import threading
from pathlib import Path

import numpy as np
import pytest

from harness.backends.serving.cache import PAGE, FreePages, Pages, pages_for
from harness.backends.serving.model import Model, Shape, answer, attention
from harness.backends.serving.statistics import joined
from harness.workloads.arrivals import Arrival, poisson, read_arrivals, read_trace, write_arrivals

SHAPE = Shape(2, 48, 4, 64)
WANTED = 12


def prompt(number: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, tokens)


class Hosts:
    """Decode hosts, a thread each, which sum their parts as the communicator does."""

    def __init__(self, parts: int, prompts: list[np.ndarray]) -> None:
        self.models = [Model(SHAPE, 5, part, parts) for part in range(parts)]
        self.prompts, heads = prompts, SHAPE.heads // parts
        self.free = FreePages(64)
        self.tables = [self.free.take(pages_for(len(each) + WANTED)) for each in prompts]
        self.pages = [Pages(SHAPE, heads, 64) for _ in range(parts)]
        whole = Model(SHAPE, 5)
        for each, table in zip(prompts, self.tables, strict=True):
            made = whole.prefill(each[:-1])
            for part, pages in enumerate(self.pages):
                pages.put(table[: pages_for(len(made))], made[:, :, :, part * heads : (part + 1) * heads])
        self.together = threading.Barrier(parts)
        self.sums: list[np.ndarray] = [np.empty(0)] * parts

    def answers(self) -> list[list[list[int]]]:
        """By host and prompt; all prompts in one batch."""
        found: list[list[list[int]]] = [[] for _ in self.models]
        threads = [threading.Thread(target=self.decode, args=(part, found)) for part in range(len(self.models))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def reduce(self, part: int, own: np.ndarray) -> np.ndarray:
        self.sums[part] = own
        self.together.wait()
        total: np.ndarray = sum(self.sums[::-1], np.zeros_like(own))
        self.together.wait()
        return total

    def decode(self, part: int, found: list[list[list[int]]]) -> None:
        tokens = [[int(each[-1])] for each in self.prompts]
        pages = self.pages[part]
        for _ in range(WANTED):
            places = [len(p) + len(t) - 2 for p, t in zip(self.prompts, tokens, strict=True)]

            def attend(layer: int, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
                seen = np.empty_like(query)
                for row, (table, place) in enumerate(zip(self.tables, places, strict=True)):  # noqa: B023
                    pages.add(table, place, layer, key[row], value[row])
                    seen[row] = attention(query[row : row + 1], *pages.read(table, place + 1, layer))[0]
                return seen

            last = np.array([each[-1] for each in tokens])
            following = self.models[part].following(last, np.array(places), attend, lambda s: self.reduce(part, s))
            for each, token in zip(tokens, following, strict=True):
                each.append(int(token))
        found[part] = [each[1:] for each in tokens]


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_tokens_are_the_same_in_pages_batches_and_parts(parts: int) -> None:
    prompts = [prompt(1, 33), prompt(2, 17), prompt(3, 2)]
    alone = [list(answer(Model(SHAPE, 5), each, WANTED)) for each in prompts]
    assert Hosts(parts, prompts).answers() == [alone] * parts
    assert len({tuple(each) for each in alone}) == 3


def test_an_answer_goes_on_from_what_is_known_of_it() -> None:
    model, whole = Model(SHAPE, 5), list(answer(Model(SHAPE, 5), prompt(1, 30), WANTED))
    known = np.concatenate([prompt(1, 30), whole[:5]])
    assert list(answer(model, known, WANTED - 5)) == whole[5:]


def test_another_page_gives_other_tokens_and_another_checksum() -> None:
    prompts = [prompt(1, 40)]
    right = Hosts(2, prompts).answers()
    spoilt = Hosts(2, prompts)
    page = spoilt.tables[0][1]
    before = [pages.checksum(page) for pages in spoilt.pages]
    spoilt.pages[0].memory[page] *= -1
    assert [pages.checksum(page) == was for pages, was in zip(spoilt.pages, before, strict=True)] == [False, True]
    assert spoilt.answers() != right


def test_pages_are_taken_whole_or_not_at_all() -> None:
    free = FreePages(3)
    assert free.take(pages_for(PAGE + 1)) == [0, 1] and free.take(2) == [] and free.take(1) == [2]
    free.give([1])
    assert free.take(1) == [1]


def test_users_of_the_same_nics_are_told_as_one() -> None:
    nic = {"name": "eth0", "tx_bytes": 1, "rx_bytes": 2, "state": "up"}
    one = {"rank": 1, "nics": [nic], "events": [{"t_ns": 5}]}
    both = joined(one, None, {"nics": [nic, {**nic, "name": "eth1"}], "events": [{"t_ns": 3}]})
    assert [(n["name"], n["tx_bytes"], n["rx_bytes"]) for n in both["nics"]] == [("eth0", 2, 4), ("eth1", 1, 2)]
    assert both["rank"] == 1 and [event["t_ns"] for event in both["events"]] == [3, 5]


def test_arrivals_are_the_same_for_the_same_seed_and_go_through_a_command_line() -> None:
    drawn = poisson(200, 4.0, 64, 8, seed=3)
    assert drawn == poisson(200, 4.0, 64, 8, seed=3) != poisson(200, 4.0, 64, 8, seed=4)
    assert drawn[-1].at_s == pytest.approx(50, rel=0.3)
    again = read_arrivals(write_arrivals(drawn))
    assert [one.prompt for one in again] == [64] * 200 and again[7].at_s == pytest.approx(drawn[7].at_s, abs=1e-3)


HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_a_trace_in_azure_s_columns_is_played_faster_and_cut_to_the_context(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        HEAD + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.6805900,3960,109\n2023-11-16 18:16:00,1,1\n"
    )
    assert read_trace(path, 2, 512, speed=2) == (Arrival(0, 374, 44), Arrival(2, 403, 109))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("TIMESTAMP,ContextTokens\n", "has no column 'GeneratedTokens'"),
        (HEAD + "yesterday,1,1\n", "line 2: not a time and two numbers"),
        (HEAD + "2023-11-16 18:15:46,0,1\n", "line 2: a request has at least one token"),
        (HEAD + "2023-11-16 18:15:46,5,1\n2023-11-16 18:15:45,5,1\n", "line 3: earlier than the line above it"),
        (HEAD + "2023-11-16 18:15:46,5,1\n", "holds 1 requests; lower workload.requests, which are 2"),
    ],
)
def test_what_is_wrong_with_a_trace_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=line):
        read_trace(path, 2, 512)
