"""Perturbations: seeded changes to model inputs, such as views of a text and token-level stress."""
