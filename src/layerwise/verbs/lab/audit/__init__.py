"""audit: how often rules and recipes choose right, on models with known scores."""
