"""What everything stands on: errors, words and their checks, files, recipes."""
