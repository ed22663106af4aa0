"""Families: what differs between architectures, one file per exception. No other code names an architecture."""
