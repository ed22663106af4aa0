"""The metrics as plain functions on tensors: batched, masked, differentiable."""

from layerwise.metrics.anisotropy import anisotropy, top_share
from layerwise.metrics.block_influence import block_influence
from layerwise.metrics.curvature import curvature
from layerwise.metrics.dime import dime, joint_entropy
from layerwise.metrics.infonce import infonce
from layerwise.metrics.intrinsic_dimension import intrinsic_dimension
from layerwise.metrics.lidar import lidar
from layerwise.metrics.linear_cka import linear_cka
from layerwise.metrics.mean_norm import mean_norm
from layerwise.metrics.ops.pooling import pool
from layerwise.metrics.ops.rows import treat_rows
from layerwise.metrics.ops.spectrum import effective_rank, matrix_entropy, spectrum
from layerwise.metrics.participation import participation
from layerwise.metrics.prompt_entropy import normalized_prompt_entropy, prompt_entropy

__all__ = [
    "anisotropy",
    "block_influence",
    "curvature",
    "dime",
    "effective_rank",
    "infonce",
    "intrinsic_dimension",
    "joint_entropy",
    "lidar",
    "linear_cka",
    "matrix_entropy",
    "mean_norm",
    "normalized_prompt_entropy",
    "participation",
    "pool",
    "prompt_entropy",
    "spectrum",
    "top_share",
    "treat_rows",
]
