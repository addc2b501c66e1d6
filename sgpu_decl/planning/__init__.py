"""Everything that the planner is told, gathered read-only."""
