"""What `sgpu doctor probe` runs on nodes: it measures what sgpu assumes of a platform."""
