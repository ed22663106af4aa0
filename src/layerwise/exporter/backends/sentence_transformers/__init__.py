"""A recipe as a folder that plain sentence-transformers loads."""
