"""What people look at: one HTML page of a set of runs, and figures for papers."""
