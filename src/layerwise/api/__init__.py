"""The library's verbs, one file per verb."""
