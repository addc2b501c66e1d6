"""What every remote backend needs over `RemoteFiles`: uploads, launch folders, leases, gc, results.

No backend is known here. A backend whose ranks run on other machines puts these together:

1. Files that this machine and its nodes both see: an implementation of `files.RemoteFiles`, such as
   `folder_files.FolderFiles` for a folder that all of them have mounted.
2. A staging folder among them: `staging_area.StagingArea(RemoteLayout(root), files)`.
3. `launch_folder.NodeProgram`: how many nodes a run gets, and which files of its own the backend
   puts into a launch folder. Its `files` gets a `NodeStart`, whose `arguments` start the agent on
   a node: `python -I -S AGENT.zip node ...`. The environment has the values of the run's secrets,
   and the variables of `agent.node.platform.PlatformTable`: which node this is, of how many, and
   where node 0 is. The agent writes lines of ranks to its stdout. SIGTERM stops the run, and the
   exit code of every agent is the run's.
4. `uploader.Uploader`: `share` in `prepare`, `fill` in `stage`, and `release` when a launch is
   started or has failed. Once it is started, the backend writes `remote_layout.MARKER` into the
   launch folder (`render_marker`): from then on the marker keeps what the launch needs from gc.
5. `attempts.RemoteAttempts`, from which its `Attempts` derive: it says where a launch lies and what
   was brought back (`remote_results.RemoteResults`), and gets results, output and errors for that.
6. `storage.RemoteStorage`: its `Storage`, as it is. `pending_gc.PendingGc` remembers where gc had
   to wait.

`log_lines` reads the stdout of nodes again: which rank a line is of, and which lines were read
before.
"""
