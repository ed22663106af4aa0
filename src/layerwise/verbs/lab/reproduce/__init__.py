"""reproduce: the figures and tables of the paper."""
