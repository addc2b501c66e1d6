"""State that machines share: a journal of numbered entries, and a copy of its tables here.

A store of this kind can do one thing: add an entry under a number that is not taken yet. That is
the lock, the fence, the transaction and the audit log.

    another machine ──▶ entries 1, 2, 3 … (PostgreSQL, files) ──▶ replica.db ──▶ reads

- An entry (`entry.py`) holds calls of a `StateWriter` (`ops.py`) and the digest of the one before.
- The replica (`replica.py`) is a database with the tables of SQLite's store. It is caught up before
  it is read, and answers with the code of that store. If it is deleted, the next command makes it
  again.
- A writer (`writer.py`) makes its change in a transaction of the replica, appends the entry with
  the next number, and only then commits. If that number is taken, the change is taken back. So a
  process that has lost the lock cannot write: the entry that took the lock away has that number.
- The lock is a lease (`lock_lease.py`): an entry, which counts until its holder has appended
  nothing for a while. The clock of the store judges that, never the clock of a machine.
"""
