"""What backends share whose attempts run on one machine among others, under a supervisor of their
own: this machine, or one that is spoken with. The attempt folder is the truth there: `host_spec`
writes it, `folder_attempts` and its neighbours read it, where it lies or as a copy."""
