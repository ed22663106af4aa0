"""A recipe as a folder that plain sentence-transformers loads, with proof (not `export`: that name is the verb)."""
