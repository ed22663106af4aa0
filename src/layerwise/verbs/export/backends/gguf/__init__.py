"""Exports a servable recipe as GGUF files for llama.cpp."""
