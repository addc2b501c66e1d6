"""Telling of the end of an attempt: a command and a webhook, in a process beside the agent."""
