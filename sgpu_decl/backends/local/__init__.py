"""Ranks on this machine, under the node agent."""
