"""The Python API: decorated functions that run as ranks, on the same `api` as the command line.

A call is read like a run file. Its fields come from defaults, the `functions` block of the project,
the decorator and the target, merged as nodes of YAML. Values of the decorator have its line as
their place, and errors use the names of its parameters.

The pickles of a call (`model/call`) are no part of the plan. They are handed to the launch in
memory, with large buffers as views of the caller's arrays, and written once, into the attempt's
folder. So the plan of a call cannot be saved. On this machine ranks work in the caller's folder,
with its `sys.path`. On another machine, the code of the call is the modules that this process
imported from the user's own folders.

Wrappers that are pickled by name or cannot be pickled (`lru_cache`, `singledispatch`,
`torch.compile`) are rebuilt in the rank. A call that blocks its caller ends when that process ends.
"""
