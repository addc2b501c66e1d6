"""What the user writes: one frozen pydantic model per YAML block, and their JSON Schemas."""
