"""campaign: many scans from one file, run by one process or by many, into one table."""
