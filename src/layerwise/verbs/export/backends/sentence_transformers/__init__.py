"""Exports a recipe to a folder that plain sentence-transformers can load."""
