"""The metrics, one per file: a pure function, the reading it needs, and its score."""
