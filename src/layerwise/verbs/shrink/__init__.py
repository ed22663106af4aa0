"""shrink: keeps some blocks of an embedding model, or none, and fits the rest to give the whole model's vectors."""
