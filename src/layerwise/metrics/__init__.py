"""The metrics: one file = one metric = a pure function, what is kept for it, and the score made of that."""
