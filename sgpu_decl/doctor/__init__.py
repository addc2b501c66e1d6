"""Checks of this machine and of a project, for `sgpu doctor`. They read only."""
