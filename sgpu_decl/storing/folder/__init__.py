"""The journal of a state in a folder that machines share."""
