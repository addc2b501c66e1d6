"""A workspace as its APIs show it: login, connection, files, errors."""
