"""Jobs on this machine: started by hand, and walked by a process of their own.

`sgpu start` stages each task as an attempt below the folder of the job (`local_jobs.py`,
`task_requests.py`), and starts the walker (`launch_walker.py`), which outlives it. The walker makes
the folder of the launch, starts tasks once those before them have ended (`run_if.py`), and writes
down what becomes of them (`launch_record.py`).
"""
