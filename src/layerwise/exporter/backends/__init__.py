"""Formats that a recipe can be exported to: one file or folder per backend, all with the interface of backend.py."""
