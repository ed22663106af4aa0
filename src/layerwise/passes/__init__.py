"""The tapped forward pass: examples become batches, and each layer of a batch goes to a consumer."""
