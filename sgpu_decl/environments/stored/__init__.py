"""The store of environments, and packs that carry them elsewhere."""
