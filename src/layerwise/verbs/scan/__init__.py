"""scan: every metric of every layer in one pass. Data become shards, shards become states, states become scores."""
