"""Launches on a Ray cluster: the package of a launch, and its job."""
