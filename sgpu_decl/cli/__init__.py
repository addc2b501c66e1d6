"""The command line: parse, call the api, show, return an exit code. One file per command.

All text goes to the terminal through one function, which passes newlines, tabs and our own colours,
and escapes every other character that a terminal obeys, hides or reorders. Lines of ranks keep
their colours; a progress bar that rewrote a line is shown with its last text.

One loop draws while runs are followed. What it sees goes to plain lines, or on a terminal to a live
region under the lines. Only the latter imports rich, and nothing else writes to the terminal while
it is open. Lines of logs are handled in groups (10 ms of one rank), so that showing 400,000 lines
takes about as long as `cat` does.
"""
