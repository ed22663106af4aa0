"""compare: what differs between runs, layer by layer."""
