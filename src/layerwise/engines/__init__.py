"""Engines: map a shard function over shards, write the results, resume after an interruption."""
