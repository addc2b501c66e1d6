"""The journal of a state in a bucket of an object store."""
