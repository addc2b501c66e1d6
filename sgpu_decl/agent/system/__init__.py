"""What the agent needs of the operating system: processes, locks, one event loop, safe files."""
