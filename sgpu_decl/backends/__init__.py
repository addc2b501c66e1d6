"""Where ranks run. Each backend is a folder, loaded only when a run names it."""
