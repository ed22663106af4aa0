"""Second moments stored by a finished scan, for fitting a linear map without another pass."""

from torch import Tensor

from layerwise.core.checks import SHIPPED
from layerwise.core.errors import InputError
from layerwise.core.recipe import Readout
from layerwise.metrics.accumulators.second_moment import SecondMoment
from layerwise.metrics.readings import pooled_rows
from layerwise.models.network import Network
from layerwise.models.opening import is_recorded_model
from layerwise.runs.folder import Run
from layerwise.runs.keys import StateKey
from layerwise.verbs.scan.state import load_state


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
