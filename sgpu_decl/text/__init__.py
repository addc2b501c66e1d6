"""YAML text to a document whose values know their places; overrides and references."""
