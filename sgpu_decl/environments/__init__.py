"""Python environments: captured, compared, stored by content, and made into trees.

Each environment becomes a *manifest* of paths and contents (`agent/environment/manifest`). From
there on, its origin does not matter.

    snapshot ─▶ captured ────────────────────┐                       ┌─▶ tree (hard links), shared
    lock, dependencies ─▶ declared: a lock,  ├─▶ manifest + objects ─┤   by all attempts
                          built by uv ───────┘                       └─▶ packs, for other machines

**Identity.** The digest of a snapshot is that of its manifest: interpreter, folders on the path,
files. The digest of a locked environment is that of the lock and the interpreter, so a plan knows
it before anything is built. The lock's digest covers names, versions and hashes, not where files
lie.

**Captured.** Nothing that is installed is run. `.pth` files are resolved: a folder that a line
names gets a place of its own, finders of editable installs are read and left out, and their
packages are taken. What differs between two installations of equal packages is normalised: the
first lines of scripts, the lines of RECORD about bytecode, installers' notes. Small processes read,
hash and copy each file in one pass, since one Python process reads small files with one core only.

**Stored.** Objects carry one fixed time of change and their mode in their name, because files of a
tree are hard links to them: a file of a tree with another time was written to. Nothing is synced to
disk. Objects are verified when a tree is made of them, manifests are sealed by their hash, and a
damaged object is copied again from the interpreter that it came from.

**Known** environments (bases of platforms, lock files, installed packages, as lists) are only
looked at and compared; nothing is stored for that.
"""
