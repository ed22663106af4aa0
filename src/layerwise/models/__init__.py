"""The only package that accesses the internals of transformers models: finding blocks, loading, taps."""
