"""PEFT adapters: attached to the model class they were trained on, checked weight by weight, then merged."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from layerwise.core.errors import MissingExtra, ModelError

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def load_with_adapter(load: Callable[[Any], nn.Module], folder: str) -> nn.Module:
    """Loads the model and merges the adapter into its weights. `load` loads the base model with a given Auto class.

    An adapter names weights by their path in the model it was trained on; with a language model head, paths are one
    level deeper. Both are tried, and one is used only if every weight of the adapter matches.
    """
    if find_spec("peft") is None:
        raise MissingExtra("adapters need peft: pip install peft")
    from peft import PeftConfig, PeftModel
    from peft.utils.save_and_load import load_peft_weights, set_peft_model_state_dict

    config = adapter_config(PeftConfig, folder)
    weights = load_peft_weights(folder, device="cpu", use_safetensors=True)
    mismatches: list[str] = []
    for auto_class in auto_classes_for_task(str(config.task_type or "")):
        try:
            base = load(auto_class)
        except ModelError:
            if auto_class.__name__ == "AutoModel":
                raise
            continue  # this architecture has no such head
        config.task_type = None  # a plain wrapper: generation is not needed
        config.inference_mode = True
        model = PeftModel(base, config)
        try:
            result: Any = set_peft_model_state_dict(model, dict(weights))
        except RuntimeError as error:  # shape mismatch
            mismatches = [line.strip() for line in str(error).splitlines() if "size mismatch" in line] or [str(error)]
            continue
        missing = [name for name in result.missing_keys if "lora_" in name or "modules_to_save" in name]
        if not result.unexpected_keys and not missing:
            merged: Any = model.merge_and_unload()
            return getattr(merged, "base_model", merged)  # type: ignore[no-any-return]
        mismatches = [*result.unexpected_keys, *missing]
    raise ModelError(
        f"the adapter {folder!r} does not match this model: {len(mismatches)} of its weights are not in it, such as "
        f"{mismatches[0]}. It was trained on {config.base_model_name_or_path!r}"
    )


def adapter_config(config_class: Any, folder: str) -> Any:
    """The adapter's config; raises if the folder contains no adapter in safetensors format."""
    path = Path(folder)
    if path.is_dir() and not (path / ADAPTER_WEIGHTS).is_file():
        listing = ", ".join(sorted(p.name for p in path.iterdir())) or "nothing"
        raise ModelError(
            f"{folder!r} has no {ADAPTER_WEIGHTS} (it contains {listing}); layerwise only reads adapters "
            "in safetensors format"
        )
    try:
        return config_class.from_pretrained(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"cannot load the adapter {folder!r}: {str(error).strip()}") from error


def auto_classes_for_task(task: str) -> list[Any]:
    """The classes to try, starting with the adapter's own task."""
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    order = [AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM]
    return [AutoModelForCausalLM, AutoModel, AutoModelForMaskedLM] if task.endswith("CAUSAL_LM") else order
