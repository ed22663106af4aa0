"""Accumulators: update, merge, to_state, from_state. Results do not depend on how the data are split or ordered."""
