"""How a process launches attempts: an agent for each, or servers that fork it."""
