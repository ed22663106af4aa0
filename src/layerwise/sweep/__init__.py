"""scan: plan, worker, state, rows. Data become shards, shards become states, states become scores."""
