"""How values are shown to people: text, Markdown, JSON and HTML; no decisions."""
