"""embed: the vectors of texts, of any layer."""
