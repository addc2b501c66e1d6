"""How values are shown to people: text and Markdown, no decisions."""
