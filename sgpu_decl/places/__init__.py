"""Places: files that this machine shares with others and with the nodes of a backend."""
