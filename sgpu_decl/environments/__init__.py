"""Python environments: captured, compared, stored by content, rehydrated."""
