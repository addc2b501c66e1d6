"""What planning asks about runs on Databricks."""
