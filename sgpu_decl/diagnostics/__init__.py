"""Places, findings and how they are shown as text. The lowest room: standard library only."""
