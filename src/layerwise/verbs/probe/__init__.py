"""probe: what can be read from each layer with labels, by probes that are trained on its vectors."""
