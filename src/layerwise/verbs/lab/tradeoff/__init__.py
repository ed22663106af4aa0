"""tradeoff: the score of each layer against its cost."""
