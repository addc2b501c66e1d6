"""Lakeflow jobs, through the Jobs API."""
