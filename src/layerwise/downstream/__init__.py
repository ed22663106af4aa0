"""Labelled tasks: vectors of all layers from one pass, MTEB's own scoring of each layer, and what goes with what."""
