"""The journal of a state in a PostgreSQL database."""
