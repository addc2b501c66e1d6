"""What another machine asks of this one over a connection: facts, content, and attempts.

`program` answers requests (`wire`) that come on its stdin. It holds nothing: the truth about an
attempt is its folder, so a connection may end at any moment, and another one goes on.
"""
