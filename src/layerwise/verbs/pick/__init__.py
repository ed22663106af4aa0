"""pick: which layer or recipe to use, with its uncertainty."""
