"""What a plan says of a run on a Ray cluster: where its rank groups go, and whether they fit."""
