"""One node of a run on a platform that starts a command on each node, and no more than that."""
