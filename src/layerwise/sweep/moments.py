"""Moments: the second moments that a finished scan kept of a layer, to fit a linear map without another pass."""

from pathlib import Path

from torch import Tensor

from layerwise.accumulators.second_moment import SecondMoment
from layerwise.core.checks import SHIPPED
from layerwise.core.errors import InputError
from layerwise.core.files import open_folder
from layerwise.core.recipe import Readout
from layerwise.engines.shards import newest_state
from layerwise.metrics.readings import pooled_rows
from layerwise.models.network import Network
from layerwise.runs.table import LayerTable
from layerwise.sweep.state import ScanState


def moments_of(
    run: str | Path, network: Network, at: Readout, max_length: int, prompt: str = ""
) -> tuple[int, Tensor, Tensor]:
    """Count, mean and scatter of the pooled rows of that readout, as this very model gave them."""
    if prompt or at.readout == SHIPPED:
        what = f"texts behind the prompt {prompt!r}" if prompt else "the model as shipped"
        raise InputError(f"a scan keeps nothing of {what}; pass texts to --fit instead of {run}")
    table = LayerTable.load(run)
    scanned = table.recorded("model", "fingerprint"), table.recorded("plan", "max_length")
    if scanned != (network.fingerprint(), max_length):
        raise InputError(f"{run} is a scan of another model or length; scan this one, or pass texts to --fit")
    state = newest_state(open_folder(run), ScanState.parse)
    key = f"{at.layer:03d}|{at.readout}|{at.tokens}|{at.pooling}|{pooled_rows('raw').name}"
    kept = state.kept.get(key) if state is not None else None
    if not isinstance(kept, SecondMoment):
        raise InputError(
            f"{run} kept no second moments of layer {at.layer} ({at.readout}, {at.tokens}, {at.pooling}); "
            "scan with --metrics dataset_entropy and these options, or pass texts to --fit"
        )
    return kept.summed()
