"""A fitted recipe as a folder of some format, with proof (not `export`: that name is the verb)."""
