"""Pure functions on tensors: rows, spectra, angles, pooling. Torch only; no state, no models."""
