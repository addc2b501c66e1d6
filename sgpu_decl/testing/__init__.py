"""Helps for users' own tests; nothing else of sgpu imports them."""
