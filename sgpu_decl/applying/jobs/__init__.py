"""Jobs of a project: wanted, seen, carried out, taken over, and looked at."""
