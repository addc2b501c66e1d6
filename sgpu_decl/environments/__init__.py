"""Python environments: captured, compared, stored by content, and made into trees.

Each environment becomes a *manifest* of paths and contents (`content/manifest`). After
that, its origin does not matter.

    snapshot ─▶ captured ────────────────────┐                       ┌─▶ tree (hard links), shared
    lock, dependencies ─▶ declared: a lock,  ├─▶ manifest + objects ─┤   by all attempts
                          built by uv ───────┘                       └─▶ packs, for other machines

**Identity.** The digest of a snapshot is that of its manifest: interpreter, folders on the path,
files. The digest of a locked environment is that of the lock and the interpreter, so a plan knows
it before anything is built. The lock's digest covers names, versions and hashes, but not the
locations of files.

**Captured.** Installed code is never run. `.pth` files are resolved: a folder that a line names
gets a place of its own; the finder of an editable install is read and left out, and its packages
are captured. Differences between two installations of the same packages are normalised: the first
lines of scripts, the lines of RECORD about bytecode, and installers' notes. Small processes read,
hash and copy each file in one pass, since one Python process reads small files with one core only.

**Stored.** Files of a tree are hard links to objects. So all objects carry one fixed modification
time, and their mode is part of their name: a file of a tree with another time was written to.
Nothing is synced to disk. Objects are verified when a tree is made, manifests are sealed by their
hash, and a damaged object is copied again from the interpreter that it came from.

**Lists of packages** (bases of platforms, lock files, installed packages) are compared, and not
stored.
"""
