"""Values become text: the spec of an attempt and the entrypoint of its ranks."""
