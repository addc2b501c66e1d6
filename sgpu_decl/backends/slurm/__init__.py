"""Runs as jobs of Slurm, which its own commands start on a login node. Nodes share a folder."""
