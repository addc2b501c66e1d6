"""Several nodes as one group: who decides for all, and the wire between their agents."""
