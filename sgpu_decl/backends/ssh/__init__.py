"""Runs on a machine that ssh reaches: its node agent answers over one kept connection, see
`agent.box`."""
