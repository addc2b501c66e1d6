"""Runs on Databricks serverless GPU compute, through the official SDK."""
