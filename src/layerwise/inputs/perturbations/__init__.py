"""Perturbations: seeded changes of what a model sees, such as views of a text and stress inputs made of tokens."""
