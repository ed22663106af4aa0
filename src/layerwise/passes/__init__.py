"""One tapped pass over a model: examples to batches, batches through the taps to a consumer."""
