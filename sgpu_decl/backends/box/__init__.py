"""A machine that is spoken with over a kept connection of OpenSSH, for backends that reach theirs
so: `boxes` asks the node agent there (`agent.box`), `box_uploads` sends what its store lacks, and
`box_mirror` brings what attempts left. No backend is known here."""
