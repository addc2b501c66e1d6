"""The programs that run on a Ray cluster: the driver of a launch, and the actor of each node. Only
these import Ray, in whatever version the cluster has, and beside it the node agent alone. Their
oldest Python is 3.10. (`bundle_counts`, `head_names` and `job_verdict` do not import Ray: the
client has them too.)

    driver ─▶ placement group ─▶ one actor for each node ─▶ node program ─▶ agent ─▶ ranks

Each dies with the one before it. The driver closes a connection, the actor a pipe, and the agent
gets SIGTERM when the node program is gone, so that ranks have their grace, whatever was killed.
(Ray does not end the processes that a worker's children start. Ray 2.49 does not end the
children either.)
"""
