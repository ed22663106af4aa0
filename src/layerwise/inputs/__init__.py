"""Examples and how they become model inputs: sources, processors, perturbations."""
