"""What every remote backend needs over `FilePlace`: uploads, launch folders, leases, gc, results.

No backend is known here. A backend whose ranks run on other machines puts these together:

1. Files that this machine and its nodes both see: a `places.file_place.FilePlace`, such as
   `places.folder.FolderPlace` for a folder that all of them have mounted.
2. A staging folder among them: `staging.staging_area.StagingArea(RemoteLayout(root), files)`.
3. `launching.launch_folder.NodeProgram`: how many nodes a run gets, and which files of its own the
   backend puts into a launch folder. Its `files` gets a `NodeStart`, whose `arguments` start the
   agent on a node: `python -I -S AGENT.zip node ...`. The environment has the values of the run's
   secrets, and the variables of `agent.node.platform.PlatformTable`: which node this is, of how
   many, and where node 0 is. The agent writes lines of ranks to its stdout. SIGTERM stops the run,
   and the exit code of every agent is the run's.
4. `launching.remote_launches.RemoteLaunches`: where launches lie, by the `backend` block of their
   config.
5. `launching.remote_launcher.RemoteLauncher`, from which its `Launcher` derives. It uploads
   (`uploader.Uploader`) and writes the marker of a launch folder, which keeps from then on what the
   launch needs from gc. The backend says how nodes are started and stopped.
6. `watching.remote_attempts.RemoteAttempts`, from which its `Attempts` derive: results, output and
   errors. The backend says how an attempt stands (`remote_status.ended_status` puts together how
   the platform says that it ended, and what its nodes brought back), and reads its log
   (`node_logs.SharedLogs` are the files of nodes in a shared folder). What is final is remembered
   on this machine (`remote_launches.AttemptMemory`), and not asked again.
7. `staging.remote_storage.RemoteStorage`: its `Storage`, as it is. `remote_gc.PendingGc` remembers
   where gc had to wait.

`remote_survey.RemoteSurvey` and the rules beside it are what planning asks of all of them.
"""
