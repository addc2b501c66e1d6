"""From wanted, recorded and observed to a plan: arithmetic, with everything passed in."""
