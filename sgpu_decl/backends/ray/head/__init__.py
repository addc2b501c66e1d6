"""The head's folder, for runs without `storage`: read over HTTP, and written by the depot."""
