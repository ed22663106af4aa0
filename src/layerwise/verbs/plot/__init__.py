"""plot: draws one figure."""
