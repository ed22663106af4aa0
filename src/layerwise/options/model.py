"""How a model is loaded."""

from dataclasses import dataclass
from typing import Annotated, Literal

from layerwise.options.field import Option, require_valid

Dtype = Literal["float32", "bfloat16", "float16", "float64"]
GROUP = "the model"


@dataclass(frozen=True)
class ModelSpec:
    """Which model to load and how; enough to load the same one again in another process."""

    name: Annotated[str, Option("hub id or folder with config.json and model.safetensors")]
    revision: Annotated[str | None, Option("branch, tag or commit on the hub", group=GROUP)] = None
    dtype: Annotated[Dtype, Option("number type of the weights", group=GROUP)] = "float32"
    device: Annotated[str, Option("cpu, cuda, cuda:1, mps, or auto: what the machine has", group=GROUP)] = "auto"
    device_map: Annotated[
        str | None, Option("auto: spread a large model over devices (needs accelerate)", group=GROUP)
    ] = None
    trust_remote_code: Annotated[bool, Option("run code that comes with the model", group=GROUP)] = False
    adapter: Annotated[str | None, Option("folder of a PEFT adapter to merge in (needs peft)", group=GROUP)] = None
    part: Annotated[str | None, Option("which stack to read where a model has two, such as encoder", group=GROUP)] = (
        None
    )

    def __post_init__(self) -> None:
        require_valid(self)
