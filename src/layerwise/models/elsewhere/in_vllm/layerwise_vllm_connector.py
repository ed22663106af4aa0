"""Hands the hidden states of finished requests over. Runs inside vLLM, which loads it by its module's name.

vLLM's own connector of this kind copies through pinned memory and CUDA streams, which a CPU has not. This one copies
them at once: to HANDED_OVER where vLLM runs in the process that asked, otherwise to a file per request.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    extract_from_kv_cache,
)

HANDED_OVER: dict[str, dict[str, torch.Tensor]] = {}  # by request


class LayerwiseConnector(ExampleHiddenStatesConnector):  # type: ignore[misc]
    def wait_for_save(self) -> None:
        """Its parent makes lock files here; nobody reads a file of ours before the request is finished."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        pending = self._get_connector_metadata().pending_saves if self.has_connector_metadata() else []
        folder = self._kv_transfer_config.get_from_extra_config("folder", "")
        done = set()
        for request in pending if self._is_tp_rank_zero else ():
            blocks, offsets = torch.tensor(request.block_ids), torch.arange(self._block_size)
            slots = (offsets + blocks[:, None] * self._block_size).flatten().to(self._kv_cache.device)
            states = extract_from_kv_cache(self._kv_cache, slots, len(request.token_ids))
            found = {"hidden_states": states.to("cpu", copy=True).contiguous(), "token_ids": request.token_ids}
            if folder:
                partial = Path(folder, f"{request.req_id}.partial")
                save_file(found, partial)
                partial.rename(partial.with_suffix(".safetensors"))
            else:
                HANDED_OVER[request.req_id] = found
            done.add(request.req_id)
        return done or None, None
