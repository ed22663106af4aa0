"""report: one HTML page for a set of runs, and figures for papers."""
