"""The folder of an attempt: its files, what is recorded in them, and what follows from them."""
