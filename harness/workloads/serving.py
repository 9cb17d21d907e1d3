"""Serving: requests to a small GPT whose prompts are computed on host 0 and whose answers on all other hosts together.

An iteration is a request, starting when the computation of its prompt starts. Its keys and values go from host 0 to
every decode host; the decode hosts sum their parts of each layer. The first token comes from a decode host, so the time
to it includes the whole transfer.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from harness.events import RankRecord, Timed
from harness.experiment.tables import Duration, Mistake
from harness.workloads.arrivals import Arrival, poisson, read_trace
from harness.workloads.base import BackendName, Workload
from harness.workloads.checkers import Checker, elements
from harness.workloads.layout import FLOATS, Shape
from harness.workloads.training import SHAPES

MOST_FLOPS = 2e11
"""Operations per second, more than one thread achieves: a request is expected to take at least the resulting time."""
TOKEN_S = 1e-3
"""Least expected time of each token, with two sums over the network per layer."""
MOST_TOGETHER = 8


def no_wrong_tokens(ranks: Sequence[RankRecord]) -> str:
    """Every token must equal the one that a single host computes."""
    wrong = next((r.result["wrong_tokens"] for r in ranks if r.result.get("wrong_tokens", "0") != "0"), "")
    return f"{wrong} tokens differ from those that one host computes alone" if wrong else ""


class ServingWorkload(Workload):
    """``kind = "serving"``."""

    kind: Literal["serving"]
    backend: BackendName = "serve_r2ccl"
    model: Literal["1M", "10M"] = "1M"
    requests: int = Field(default=20, ge=1, le=2000)
    arrivals_a_second: float = Field(default=2.0, gt=0, le=1e4, allow_inf_nan=False)
    """Rate of the Poisson process."""
    prompt: int = Field(default=256, ge=2, le=1000)
    """Tokens, which are bytes."""
    generated: int = Field(default=32, ge=1, le=1000)
    prefill_at_least_s: Duration = Field(default=0.0, alias="prefill_at_least")
    """A prompt that is computed sooner waits, as a host waits for its accelerator."""
    step_at_least_s: Duration = Field(default=0.0, alias="step_at_least")
    """Likewise for a token of all requests that are decoded together."""
    trace: str | None = None
    """A file with the columns of Azure's traces, instead of the process and the sizes."""
    speed: float = Field(default=1.0, gt=0, le=1e6, allow_inf_nan=False)
    """How many times faster than recorded a trace is replayed."""
    context: int = Field(default=512, ge=4, le=1024)
    """The most tokens of a prompt with its answer."""
    seed: int = Field(default=0, ge=0, lt=1 << 31)
    """Seed of weights, prompts and arrivals."""
    check: bool = True
    """Whether host 0 computes every answer again at the end, alone."""
    corrupt: int | None = Field(default=None, ge=0)
    """A negative control: one page of this request is changed in transit, which must be detected."""

    counts: ClassVar[str] = "requests"
    checkers: ClassVar[Sequence[Checker]] = (elements, no_wrong_tokens)
    backends: ClassVar[Sequence[BackendName]] = ("serve_r2ccl",)

    _trace: Any = PrivateAttr(None)

    @property
    def shape(self) -> Shape:
        """The shape of the model."""
        return SHAPES[self.model]

    def arrivals(self) -> tuple[Arrival, ...]:
        """The requests. Raises `ValueError` and `OSError` for an unusable trace."""
        if self.trace is None:
            return poisson(self.requests, self.arrivals_a_second, self.prompt, self.generated, self.seed)
        if self._trace is None:
            self._trace = read_trace(Path(self.trace), self.requests, self.context, self.speed)
        return self._trace  # type: ignore[no-any-return]

    def cache_bytes(self, tokens: float) -> float:
        """Bytes of the keys and values of `tokens` tokens."""
        return 2 * self.shape.layers * self.shape.width * FLOATS * tokens

    def _mean(self) -> tuple[float, float]:
        """Mean tokens of a prompt and of an answer."""
        if self.trace is None:
            return self.prompt, self.generated
        all_of_them = self.arrivals()
        count = len(all_of_them)
        return sum(one.prompt for one in all_of_them) / count, sum(one.generated for one in all_of_them) / count

    def iterations_of(self, size_bytes: int, expected_s: float, faulted: bool, seen_s: float) -> int:
        """An iteration is a request."""
        return self.requests

    def expected_s(self, size_bytes: int, ranks: int, host_bytes_s: float) -> float:
        """Two operations for each parameter and token of the prompt, its cache over the NICs, and the answer."""
        prompt, generated = self._mean()
        compute_s = max(2 * self.shape.parameters(self.context) * prompt / MOST_FLOPS, self.prefill_at_least_s)
        token_s = max(TOKEN_S, self.step_at_least_s)
        return compute_s + self.cache_bytes(prompt) / host_bytes_s + generated * token_s

    def timed_s(self, iterations: int, expected_s: float) -> float:
        """Until the last request has come and is answered, or, if they come faster, until all prompts are computed and
        sent, one after another."""
        answer_s = self._mean()[1] * max(TOKEN_S, self.step_at_least_s)
        last_s = max((one.at_s for one in self.arrivals()), default=0.0)
        return max(last_s + expected_s, iterations * (expected_s - answer_s) + answer_s)

    def host_bytes(self, size_bytes: int, hosts: int) -> float:
        """The bytes of a cache that each decode host receives."""
        return self.all_bytes(size_bytes, hosts) / max(1, hosts - 1)

    def all_bytes(self, size_bytes: int, hosts: int) -> float:
        """A cache, of which each decode host receives its heads."""
        return self.cache_bytes(self._mean()[0] - 1)

    def memory_bytes(self, size_bytes: int, ranks: int) -> int:
        """Weights, and the pages of the requests that are decoded together."""
        pages = self.cache_bytes(self.context if self.trace else self.prompt + self.generated + 16)
        return int(FLOATS * self.shape.parameters(self.context) + MOST_TOGETHER * pages)

    def about(self, size_bytes: int) -> dict[str, Any]:
        """The kind, and a description in words."""
        prompt, generated = self._mean()
        source = Path(self.trace).name if self.trace else f"{self.arrivals_a_second:g} per second"
        told = (
            f"serving of a GPT with {self.shape.parameters(self.context) / 1e6:.3g} M parameters ({source}, "
            f"{prompt:.4g} tokens in, {generated:.4g} out)"
        )
        return {"workload": self.kind, "operation": told, "counts": self.counts}

    def measures(self, size_bytes: int, ranks: int, timed: Sequence[Timed], duration_s: float) -> Mapping[str, Any]:
        """Host 0's measurements of a request."""
        return {"measures": dict(next((t.said for t in timed if t.said), {}))}

    def results(self, ranks: Sequence[RankRecord]) -> Mapping[str, Any]:
        """Host 0's digest of all answers."""
        return {"result": dict(ranks[0].result)} if ranks else {}

    def mistakes(self, hosts: int, backends: Sequence[str]) -> Iterator[Mistake]:
        """Mistakes in hosts, parts of the model, sizes and traces."""
        if hosts < 2:
            yield Mistake("cluster.hosts", hosts, "one host computes prompts, others decode; give at least 2")
        elif self.shape.heads % (hosts - 1):
            heads = self.shape.heads
            remedy = f"{hosts - 1} decode hosts cannot share the {heads} heads of a {self.model} evenly"
            yield Mistake("cluster.hosts", hosts, f"{remedy}; give one more than a divisor of {heads}")
        if self.gpus > 1:
            yield Mistake("workload.gpus", self.gpus, "serving has one rank per host")
        if self.corrupt is not None and self.corrupt >= self.requests:
            yield Mistake("workload.corrupt", self.corrupt, f"requests go from 0 to {self.requests - 1}")
        yield from self._size_mistakes()

    def _size_mistakes(self) -> Iterator[Mistake]:
        if self.trace is not None:
            try:
                self.arrivals()
            except ValueError as error:
                yield Mistake("workload.trace", self.trace, str(error))
            except OSError as error:
                yield Mistake("workload.trace", self.trace, f"cannot be read: {error.strerror}")
        elif self.speed != type(self).model_fields["speed"].default:
            remedy = "is of a trace, and there is none; give workload.trace, or set arrivals_a_second"
            yield Mistake("workload.speed", self.speed, remedy)
        elif self.prompt + self.generated > self.context:
            remedy = f"with workload.generated more than workload.context, {self.context}; raise that, up to 1024"
            yield Mistake("workload.prompt", self.prompt, remedy)
