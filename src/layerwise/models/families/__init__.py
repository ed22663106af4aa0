"""Families: what differs between architectures, one file per exception. Nothing else in layerwise knows one by name."""
