"""The Ray cluster of a run (`ray:`)."""
