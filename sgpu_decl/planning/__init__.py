"""Where a plan is made: what the planner is told is gathered, read-only; a plan is prepared, saved,
read again, proposed, and compared with what was reviewed."""
