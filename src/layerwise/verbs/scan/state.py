"""The state of a scan: all accumulators of all layers, and facts about the examples.

A finished scan keeps second moments too, so that a linear map can be fitted without another pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from torch import Tensor

from layerwise.core.checks import SHIPPED
from layerwise.core.errors import InputError, RunError
from layerwise.core.recipe import Readout
from layerwise.engines.shards import Item
from layerwise.metrics.accumulators.base import Accumulator, State, dump_states, parse_states, require_same_settings
from layerwise.metrics.accumulators.kinds import accumulator_from_state
from layerwise.metrics.accumulators.second_moment import SecondMoment
from layerwise.metrics.readings import pooled_rows
from layerwise.models.network import Network
from layerwise.models.opening import is_recorded_model
from layerwise.runs.folder import RESTORE, Run
from layerwise.runs.identity import data_fingerprint
from layerwise.runs.keys import StateKey
from layerwise.verbs.scan.plan import settings_fingerprint


def scan_moments(
    run: Run, network: Network, readout: Readout, max_length: int, template: str = ""
) -> tuple[int, Tensor, Tensor]:
    """Count, mean and scatter of the pooled rows of a readout, from a scan of this model."""
    if template or readout.norm == SHIPPED:
        missing = f"texts with the template {template!r}" if template else "the model as shipped"
        raise InputError(f"a scan keeps nothing of {missing}; pass texts to --fit instead of {run.location}")
    length = dict(run.table.run.get("plan", {})).get("max_length")
    if length != max_length or not is_recorded_model(network, run.table.require_model()):
        raise InputError(
            f"{run.location} is a scan of another model or max_length; scan this model, or pass texts to --fit"
        )
    state = load_state(run)
    key = StateKey(readout.layer, readout.norm, readout.tokens, readout.pooling, pooled_rows("raw").name)
    moment = state.accumulators.get(str(key)) if state is not None else None
    if not isinstance(moment, SecondMoment):
        settings = f"{readout.norm}, {readout.tokens}, {readout.pooling}"
        raise InputError(
            f"{run.location} kept no second moments of layer {readout.layer} ({settings}); "
            "scan with --metrics dataset_entropy and these options, or pass texts to --fit"
        )
    return moment.moments()


@dataclass
class Facts:
    """What was processed: examples, tokens, how many were truncated, and which examples they were."""

    prompts: int = 0
    tokens: int = 0  # without views
    cut: int = 0
    digests: int = 0  # sum over all examples of the hash of id and content, modulo 2^64
    missing: list[str] = field(default_factory=list)  # ids of examples that could not be computed
    prompt_files: dict[str, str] = field(default_factory=dict)  # checksums of the files of per-prompt values

    def merge(self, other: Self) -> None:
        self.prompts += other.prompts
        self.tokens += other.tokens
        self.cut += other.cut
        self.digests = (self.digests + other.digests) % 2**64
        self.missing = self.missing + other.missing
        self.prompt_files = self.prompt_files | other.prompt_files

    @property
    def examples(self) -> int:
        """The number of all examples, computed or missing."""
        return self.prompts + len(self.missing)

    @property
    def data_fingerprint(self) -> str:
        return data_fingerprint(self.examples, self.digests)


@dataclass
class ScanState:
    """The state of one shard or of all shards so far. `origin` must match before two are merged."""

    origin: Mapping[str, Any]  # plan, model, dtype
    accumulators: dict[str, Accumulator] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)

    def merge(self, other: Self) -> None:
        require_same_settings(self.origin, other.origin)
        self.facts.merge(other.facts)
        for key, accumulator in other.accumulators.items():
            if key in self.accumulators:
                self.accumulators[key].merge(accumulator)
            else:
                self.accumulators[key] = accumulator

    def was_made_from(self, count: int, digests: int) -> bool:
        """True if it was made from `count` examples whose digests sum to `digests`."""
        return (self.facts.examples, self.facts.digests) == (count, digests % 2**64)

    @property
    def missing(self) -> list[str]:
        return self.facts.missing

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return sum(accumulator.nbytes for accumulator in self.accumulators.values())

    def record_missing(self, items: Sequence[Item]) -> None:
        """Records examples that could not be computed."""
        digests = sum(item.digest for item in items) % 2**64
        self.facts.merge(Facts(digests=digests, missing=[item.id for item in items]))

    def dump(self) -> bytes:
        states = {key: accumulator.to_state() for key, accumulator in sorted(self.accumulators.items())}
        states["origin"] = State(self.origin, {})
        states["facts"] = State(asdict(self.facts), {})
        return dump_states(states)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        states = parse_states(data)
        try:
            origin, facts = states.pop("origin").settings, states.pop("facts").settings
            return cls(origin, {key: accumulator_from_state(state) for key, state in states.items()}, Facts(**facts))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not the state of a scan ({error}); repeat the scan in another folder") from None


def load_state(run: Run) -> ScanState | None:
    """The newest state of a finished run; None if there is none. Raises RunError if it is damaged, or of another run.

    Every state of a finished run is read here.
    """
    if (newest := run.newest_state()) is None:
        return None
    where, data = newest
    try:
        state = ScanState.parse(data)
    except InputError as error:
        raise RunError(f"{where} is damaged ({error}); repeat the scan in another folder") from None
    if differing := differing_facts(state, run.table.run):
        raise RunError(f"{where} belongs to another run ({', '.join(differing)} differ); {RESTORE}")
    return state


def differing_facts(state: ScanState, record: Mapping[str, Any]) -> list[str]:
    """What a state and the record of a run do not agree in."""
    model, data = record.get("model", {}), record.get("data", {})
    expected = {
        "model": model.get("fingerprint"),
        "dtype": model.get("dtype"),
        "settings": settings_fingerprint(record.get("plan", {})),
        "data": (data.get("fingerprint"), data.get("missing")),
    }
    found = {
        "model": state.origin.get("model"),
        "dtype": state.origin.get("dtype"),
        "settings": state.origin.get("plan"),
        "data": (state.facts.data_fingerprint, state.facts.missing),
    }
    return [name for name in expected if expected[name] != found[name]]
