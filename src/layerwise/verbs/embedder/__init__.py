"""embedder: pick a recipe, then export it."""
