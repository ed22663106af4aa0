"""Exports a fitted recipe to a folder and verifies it (not named `export`, since that is the verb)."""
