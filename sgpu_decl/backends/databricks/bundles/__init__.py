"""Jobs inside a bundle of the Databricks CLI. What their tasks are launched from lies in a folder
of the bundle, which the CLI uploads (`sync`) to a folder that only a deploy knows. So paths begin
with `${workspace.file_path}`, which the CLI fills in after it has read the jobs."""
