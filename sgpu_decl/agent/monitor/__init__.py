"""The monitor: a process beside the ranks of a node that measures them and follows progress."""
