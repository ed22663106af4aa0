"""Where examples come from: lists, files, standard input, the hub, the bundled demo."""
