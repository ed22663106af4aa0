"""What is kept while data streams by: update, merge, to_state, from_state. Any split, any order, same numbers."""
