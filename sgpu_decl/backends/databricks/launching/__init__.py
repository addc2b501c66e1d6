"""From a launch to a submitted run."""
