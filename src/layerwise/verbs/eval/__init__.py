"""eval: scores of every layer on labelled tasks, from one pass over each text."""
