"""Functions that run as ranks: the second door to the engine, beside the command line.

A call is a run file that nobody wrote: defaults, the `functions` block of the project, the
decorator and the target are laid on each other as nodes, and read as any run. Values of the
decorator have its line for a place, and errors use the names of its parameters.

What a call takes along (`model/call`) goes beside the plan to its launch, in memory: the pickles,
with large buffers as views of the caller's arrays, are written once, into the attempt's folder. So
a plan of a call is no document to be saved. On this machine a call works where its caller does: in
its folder, with its `sys.path`. On another one, the modules that this process imported from the
user's own folders are the code of the call.

Wrappers that are pickled by name or cannot be pickled (`lru_cache`, `singledispatch`,
`torch.compile`) are rebuilt in the rank. A call that somebody waits for ends with the process that
made it.
"""
