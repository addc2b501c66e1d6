"""The journal of a state in files of a platform."""
