"""Selection: which layer or recipe to use, how sure that is, and how often such a choice was right."""
