"""Runs: tables, records and folders, and the identity of each number."""
