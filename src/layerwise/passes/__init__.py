"""One tapped pass over a model: texts to tokens, tokens to batches, batches through the taps to a consumer."""
