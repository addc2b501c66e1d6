"""A machine that is spoken with over a kept connection of OpenSSH, for backends that reach theirs
so: `boxes` asks the node agent there (`agent.box`), `box_uploads` sends what its store lacks, and
`box_mirror` brings what attempts left. For runs whose attempts have a supervisor there,
`box_launches` knows where they lie, and `box_attempts` and `box_storage` are the protocols. No
backend is known here."""
