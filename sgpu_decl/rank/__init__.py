"""What runs inside a rank, before and after the user's code.

It is shipped beside `_air.py` as `rank.zip`, and never imported from the installed package: ranks
may run in an environment without sgpu, or with another version of it. So it is the standard library
alone, Python 3.10 or newer, and imports little, not even `__future__` for its annotations: a rank
begins with the user's first line, not ours.
"""
