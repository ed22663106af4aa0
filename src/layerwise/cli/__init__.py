"""The command line: the library's verbs, one file a verb. Data on standard output, all else on standard error."""
