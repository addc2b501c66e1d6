"""Trees of environments and the packs that they travel in: made where ranks run."""
