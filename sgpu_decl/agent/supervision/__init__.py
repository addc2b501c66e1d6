"""The processes that carry one attempt to its outcome, and stop what it leaves."""
