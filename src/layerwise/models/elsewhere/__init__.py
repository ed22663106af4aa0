"""Hidden states that are computed elsewhere: by vLLM, or stored in files."""
