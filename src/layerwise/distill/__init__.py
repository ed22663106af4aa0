"""Shrinks an embedding model: keeps some of its blocks and fits or trains them to give the whole model's vectors."""
