"""State stores: where what was applied is remembered."""
