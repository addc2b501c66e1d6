"""An interpreter, as a manifest: which folders and files make up its environment."""
