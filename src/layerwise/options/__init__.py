"""Options: one frozen dataclass per verb, shared by the library, the command line, campaign files and run records."""
