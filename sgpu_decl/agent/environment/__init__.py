"""Trees of environments, and the packs that bring them to other machines.

A tree is made once per digest, beside its final place, and renamed. All its files and folders have
one fixed modification time, and its `.sgpu-tree.json` lists the folders: to see whether a tree is
whole, only folders are looked at. Root can write through a hard link all the same. So after a run
by root every file is looked at, and a tree that was written to is deleted with those objects.

Bytecode is stored as unchecked hash-based pyc files, which depend on nothing but the source. If it
is missing, it is compiled when a tree is made, once for each source.

Installers cannot change a tree. The first module of every interpreter of a tree (`tree_start`)
refuses `pip install`, and shows uv no virtual environment. Packages in `SGPU_SITE`, the attempt's
own folder, are allowed, and come before the tree on the path.

Packs hold objects and no paths, so nothing in them can lead out of a folder. They are named after
their contents and divided by the names of objects, so that the same content is sent once. An index,
which is sent last, names the packs of an environment.
"""
