"""data: prepares labelled tables for eval."""
