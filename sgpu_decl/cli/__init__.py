"""The command line: parse, call the api, show, return an exit code. One file per command."""
