"""Content by digest: code, environments with the manifests, packs and trees that carry them, and
what ranks left in SGPU_OUTPUT_DIR.

The archive of the node agent has these modules too, so a node checks code and makes trees as this
machine does.

A tree is made once per digest, beside its final place, and renamed. Its `.sgpu-tree.json` lists the
folders, which have one fixed modification time too, so checking the folders is enough to know that
a tree is complete. But root can write through a hard link: after a run by root every file is
checked, and an altered tree is deleted with the altered objects.

Bytecode consists of unchecked hash-based pyc files, which depend only on the source. What is
missing is written by the ranks that first import a module.

Installers cannot change a tree. The module that every interpreter of a tree starts with
(`tree_start`) refuses `pip install`, and hides the virtual environment from uv. Installing into
`SGPU_SITE`, the attempt's own folder, is allowed; it comes before the tree on the path.

Packs hold objects and no paths, so no file of a pack can leave the store. They are named by their
content and cut at the names of objects, so the same content is sent once. An index, sent last,
lists the packs of an environment.
"""
