"""Shared basics: errors, option checks, files, recipes."""
