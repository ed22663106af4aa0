"""Engines: map a shard function over shards, write what it leaves, resume where it stopped."""
