"""Options: one frozen dataclass per verb. The library, the command line, campaign files and run records all read it."""
