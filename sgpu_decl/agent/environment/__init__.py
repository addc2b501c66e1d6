"""Makes trees of environments from objects and packs, on the machine where ranks run.

A tree is made once per digest, beside its final place, and renamed. Its `.sgpu-tree.json` lists the
folders, which have one fixed modification time too, so checking the folders is enough to know that
a tree is complete. But root can write through a hard link: after a run by root every file is
checked, and an altered tree is deleted with the altered objects.

Bytecode consists of unchecked hash-based pyc files, which depend only on the source. Missing
bytecode is compiled when a tree is made, once for each source.

Installers cannot change a tree. The module that every interpreter of a tree starts with
(`tree_start`) refuses `pip install`, and hides the virtual environment from uv. Installing into
`SGPU_SITE`, the attempt's own folder, is allowed; it comes before the tree on the path.

Packs hold objects and no paths, so no file of a pack can leave the store. They are named by their
content and cut at the names of objects, so the same content is sent once. An index, sent last,
lists the packs of an environment.
"""
