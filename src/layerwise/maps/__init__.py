"""Linear maps that are fitted without labels."""
