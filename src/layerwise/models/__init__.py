"""The only room that touches the inside of transformers' models: where the blocks are, loading, taps."""
