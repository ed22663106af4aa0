"""export: a fitted recipe as a folder that other programs load, checked against the original model."""
