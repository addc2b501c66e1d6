"""The vocabulary: frozen values that every room above speaks in."""
