"""Runs on Databricks serverless GPU compute."""
