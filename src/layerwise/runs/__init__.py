"""Runs: tables, records and folders, and what tells one number from another."""
