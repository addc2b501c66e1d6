"""Trees of environments and the packs that they travel in: made where ranks run.

A tree is made once per digest, beside its final place, and renamed. Its `.sgpu-tree.json` lists the
folders, which carry one fixed modification time too: a tree is known to be whole by looking at its
folders alone. Root may write through a hard link all the same. So after a run by root every file
is looked at, and a tree that was written to is thrown away with the objects concerned.

Bytecode is carried as unchecked hash-based pyc files, which depend on nothing but the source. What
is missing is compiled when a tree is made, once for each source.

Installers are kept from a tree. The module that every interpreter of a tree begins with
(`tree_start`) refuses `pip install`, and shows uv no virtual environment. What goes to `SGPU_SITE`,
the attempt's own folder, is allowed, and comes before the tree on the path.

Packs hold objects and no paths, so nothing in one can lead out. They are named after what they hold
and cut by the names of objects, so that the same content is sent once. An index, sent last, says
which packs make an environment.
"""
