"""scan: plan, worker, state, rows. What is asked for becomes shards, shards become states, states become scores."""
