"""Labelled tasks: vectors of all layers from one pass, mteb scores of each layer, and correlations with metrics."""
