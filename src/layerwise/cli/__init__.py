"""The command line, one file per verb. Results go to standard output, everything else to standard error."""
