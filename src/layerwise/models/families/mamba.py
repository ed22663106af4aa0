"""Mamba and RWKV: recurrent blocks; hidden_states starts after block 1 and ends with the normed output."""

from layerwise.models.families.family import BlockLayout, Family, Point

MAMBA = Family(
    types=("mamba", "mamba2", "falcon_mamba"),
    first_hidden_state=1,
    appends_normed_output=True,
    layouts=(
        BlockLayout("mixer", (Point("mixer_input", "norm"), Point("mixer_output", "mixer"), Point("after_mixer", ""))),
    ),
)

RWKV = Family(types=("rwkv",), final_norms=("ln_out",), first_hidden_state=1, appends_normed_output=True)
