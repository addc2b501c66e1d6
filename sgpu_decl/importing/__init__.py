"""Files of other tools as files of sgpu: `sgpu import`.

For each tool there is one table, from the fields of its file to rules. A rule says what becomes of
a field: it is carried, changed, or lost. `foreign_tool` applies a table to a file, `draft` writes
the YAML and takes back what sgpu would refuse, and `imported_file` is the whole way. Nothing is
executed, and no other room needs this one.
"""
