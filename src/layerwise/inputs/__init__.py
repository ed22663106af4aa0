"""Examples and what makes model inputs of them: sources, processors, perturbations; texts are the first kind."""
