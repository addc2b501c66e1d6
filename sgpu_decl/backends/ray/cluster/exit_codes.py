"""Exit codes of the driver that are not those of the run. The client reads this too."""

NO_STORAGE = 72  # sysexits.h: EX_OSFILE
"""The driver cannot use the launch folder."""
