"""The node agent: runs the ranks of one attempt, with the standard library only."""
