"""How attempts stand on a platform, and what their nodes left: status, results, outputs, logs."""
