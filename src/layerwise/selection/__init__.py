"""Selection: which layer or recipe to use, with its uncertainty, and how often such choices were right."""
