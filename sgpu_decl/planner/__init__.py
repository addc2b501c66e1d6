"""From desired, recorded and observed state to a plan: arithmetic, with everything passed in."""
