"""Helps for tests, also for those of other packages. Of sgpu itself, `sgpu dev` alone uses them."""
