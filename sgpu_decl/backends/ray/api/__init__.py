"""Ray's dashboard: its address, the credentials for it, and its HTTP API. Nothing imports Ray."""
