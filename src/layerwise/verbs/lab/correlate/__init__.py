"""correlate: which metrics of a scan follow the scores of an eval."""
