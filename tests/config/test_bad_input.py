"""Each mistake has its code, words, place and a way out, at once and all together."""

from collections.abc import Callable

import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.excerpts import excerpt
from tests.reading import read

Bad = Callable[..., tuple[Diagnostic, ...]]
Good = Callable[..., Loaded]
HEAD = "name: train\ngpus: 1\ntype: CPU\n"
RUN = HEAD + "entrypoint: train.py:main\n"
SHARED = """\
runs:
  a: {{gpus: 1, type: CPU, command: x, env: {env}}}
environments:
  gpu: {{snapshot: true}}
"""
HF = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4"

CASES = [
    ("unknown key", "name: a\ngpu: 1\ntype: CPU\ngpus: 1\nentrypoint: a.py\n",
     "unknown_key", "2:1", "unknown key `gpu`", "did you mean `gpus`?"),
    ("unknown key in a block", RUN + "retry: {maxx: 1}\n",
     "unknown_key", "5:9", "unknown key `maxx` in `retry`", "did you mean `max`?"),
    ("option of another kind of backend", RUN + "backend: {host: x}\n",
     "unknown_key", "5:11", "unknown key `host` in `backend`", "add `kind: databricks`"),
    ("key of another block", RUN + "python: 3.10\n",
     "unknown_key", "5:1", "unknown key `python`", "`python` belongs in `env`"),
    ("duplicate key", RUN + "gpus: 2\n",
     "duplicate_key", "5:1", "the key `gpus` is written twice", "keep one"),
    ("quoted number", HEAD.replace("1", "'4'") + "entrypoint: a.py\n",
     "wrong_type", "2:7", '`gpus` must be a whole number, not the text `"4"`', "remove the quotes"),
    ("text for a number", HEAD.replace("1", "many") + "entrypoint: a.py\n",
     "wrong_type", "2:7", "`gpus` must be a whole number, not `many`", ""),
    ("fraction of a gpu", HEAD.replace("1", "1.5") + "entrypoint: a.py\n",
     "wrong_type", "2:7", "`gpus` must be a whole number, not `1.5`", ""),
    ("no gpus", HEAD.replace("1", "0") + "entrypoint: a.py\n",
     "out_of_range", "2:7", "`gpus` must be at least 1, not `0`", ""),
    ("more gpus than there are", HEAD.replace("1", "9" * 20) + "entrypoint: a.py\n",
     "out_of_range", "2:7", "`gpus` must be at most 1000000, not `99999999999999999999`", ""),
    ("twelve GPUs of nodes of eight", "name: a\ngpus: 12\ntype: GPU_8xH100\nentrypoint: a.py\n",
     "bad_gpu_count", "2:7", "12 is no multiple", "`type: H100`, or `gpus: 16`"),
    ("both entrypoint and command", RUN + "command: [x]\n",
     "two_entrypoints", "5:1", "either `entrypoint` or `command`", "null"),
    ("neither entrypoint nor command", HEAD,
     "no_entrypoint", "1:1", "neither `entrypoint` nor `command`", "add `entrypoint"),
    ("missing key", "gpus: 1\ntype: CPU\nentrypoint: a.py\n",
     "missing_key", "1:1", "`name` is missing", "add `name`"),
    ("missing key in a project", "runs:\n  a:\n    gpus: 1\n    entrypoint: a.py\n",
     "missing_key", "2:3", "`runs.a.type` is missing", ""),
    ("bad name", RUN.replace("train", "-x", 1),
     "bad_name", "1:7", "`name` is not a valid name", "letters"),
    ("no name", RUN.replace("train", "~", 1),
     "missing_key", "1:7", "`name` has no value", "write `name: train`"),
    ("a space of a web page", HEAD.replace("gpus: ", "gpus:\u00a0") + "entrypoint: a.py\n",
     "yaml_syntax", "3:1", "this is not YAML", "line 2, column 6: there is a no-break space"),
    ("half a character", RUN + 'description: "\\ud83d\\ude00"\n',
     "yaml_syntax", "5:17", "this is not YAML", "write the character itself"),
    ("a key of several lines", RUN + "? |\n  a\n  b\n: x\n",
     "unknown_key", "5:3", "unknown key `a\\nb\\n`", ""),
    ("a value without a key", RUN + "?\n",
     "key_not_text", "5:2", "a value has no key", "write `key: value`"),
    ("brackets beyond the limit of the parser", "[" * 10_000,
     "too_deep", "1:101", "nested more than 100 deep", ""),
    ("a variable without a name", RUN + "description: ${var.}\n",
     "unknown_reference", "5:14", "there is no variable", "write a name: `${var.NAME}`"),
    ("a variable of the environment without a name", RUN + "description: ${env.}\n",
     "undefined_env", "5:14", "the environment has no", "write a name: `${env.NAME}`"),
    ("bad entrypoint", HEAD + "entrypoint: train\n",
     "bad_entrypoint", "4:13", "must be an entrypoint, not `train`", "FILE.py:FUNCTION"),
    ("empty command", HEAD + "command: []\n",
     "empty_command", "4:1", "`command` is empty", ""),
    ("command of a wrong kind", HEAD + "command: {a: b}\n",
     "wrong_type", "4:1", "`command` must be text or a list, not a mapping", ""),
    ("args of a command", HEAD + "command: [x]\nargs: {a: 1}\n",
     "args_of_command", "5:1", "`args` belongs to `entrypoint`", "`command`"),
    ("scalar args", RUN + "args: 3\n",
     "wrong_type", "5:7", "`args` must be a mapping or a list, not `3`", ""),
    ("node without a command", RUN + "launch: {per: node}\n",
     "node_needs_command", "5:15", "needs a `command`", ""),
    ("modules ahead of a command", HEAD + "command: [x]\nlaunch: {warm: [torch]}\n",
     "warm_of_command", "5:10", "a command is not forked", "`entrypoint`"),
    ("masked logs of a command", HEAD + "command: [x]\nlogs: {redact: true}\n",
     "redact_of_command", "5:16", "a command writes its log by itself", "`entrypoint`"),
    ("ranks beside Ray", RUN + "ray: true\nlaunch: {per: rank}\n",
     "launch_of_ray", "6:10", "`launch.per: rank` does not go with `ray`", "one Ray node on each"),
    ("modules beside Ray", RUN + "ray: {}\nlaunch: {warm: [torch]}\n",
     "launch_of_ray", "6:10", "`launch.warm` does not go with `ray`", "remove it"),
    ("the address of a Ray cluster", RUN + "ray: true\nenv: {variables: {RAY_ADDRESS: auto}}\n",
     "reserved_variable", "6:19", "decides about `RAY_ADDRESS`", "a cluster of your own"),
    ("the token of a Ray cluster", RUN + "ray: true\nenv: {secrets: {RAY_AUTH_TOKEN: env:A}}\n",
     "reserved_variable", "6:17", "sgpu decides about `RAY_AUTH_TOKEN` itself", "remove it"),
    ("the mode of a Ray cluster", RUN + "ray: {env: {RAY_AUTH_MODE: token}}\n",
     "reserved_variable", "5:13", "sgpu decides about `RAY_AUTH_MODE` itself", "remove it"),
    ("an old name of Ray's CPUs", RUN + "ray: {cpus_per_node: 4}\n",
     "unknown_key", "5:7", "unknown key `cpus_per_node` in `ray`", "`num_cpus` replaces it"),
    ("an old name of Ray's GPUs", RUN + "ray: {gpus_per_worker: 1}\n",
     "unknown_key", "5:7", "unknown key `gpus_per_worker` in `ray`", "`num_gpus` replaces it"),
    ("an old name of Ray's time", RUN + "ray: {startup_timeout: 1m}\n",
     "unknown_key", "5:7", "unknown key `startup_timeout`", "`worker_join_timeout` replace it"),
    ("an old switch of Ray", RUN + "ray: {enabled: true}\n",
     "unknown_key", "5:7", "unknown key `enabled` in `ray`", "`ray: true`"),
    ("a misspelt option of Ray", RUN + "ray: {num_cpu: 4}\n",
     "unknown_key", "5:7", "unknown key `num_cpu` in `ray`", "did you mean `num_cpus`?"),
    ("Ray without a CPU", RUN + "ray: {num_cpus: 0}\n",
     "out_of_range", "5:17", "`ray.num_cpus` must be at least 1, not `0`", "the driver's tasks"),
    ("CPUs of Ray in words", RUN + "ray: {num_cpus: all}\n",
     "wrong_type", "5:17", "`ray.num_cpus` must be a whole number, not `all`", "leave it out"),
    ("fewer GPUs of Ray than none", RUN + "ray: {num_gpus: -1}\n",
     "out_of_range", "5:17", "`ray.num_gpus` must be at least 0, not `-1`", "leave it out"),
    ("an address as Ray's port", RUN + "ray: {port: 'a:6379'}\n",
     "wrong_type", "5:13", "`ray.port` must be a whole number", "a free port that sgpu chooses"),
    ("a port as Ray's dashboard", RUN + "ray: {dashboard: 8265}\n",
     "wrong_type", "5:18", "must be true or false, not `8265`", "`dashboard: true`"),
    ("resources of Ray without amounts", RUN + "ray: {resources: [ssd]}\n",
     "wrong_type", "5:7", "`ray.resources` must be a mapping, not a list", "`{ssd: 1}`"),
    ("a resource of Ray in words", RUN + "ray: {resources: {ssd: many}}\n",
     "wrong_type", "5:24", "`ray.resources.ssd` must be a number, not `many`", "how much a node"),
    ("variables of Ray as a list", RUN + "ray: {env: [A=b]}\n",
     "wrong_type", "5:7", "`ray.env` must be a mapping, not a list", "`{NAME: value}`"),
    ("the address of another Ray cluster", RUN + "ray: {address: auto}\n",
     "unknown_key", "5:7", "unknown key `address` in `ray`", "a cluster of its own"),
    ("an odd word for Ray", RUN + "ray: yes please\n",
     "wrong_type", "5:6", "`ray` must be true, false or a block of options, not `yes please`",
     "write `ray: true`, without quotes"),
    ("Ray in quotes", RUN + 'ray: "true"\n',
     "wrong_type", "5:6", "must be true, false or a block of options, not the text `\"true\"`",
     "write `ray: true`, without quotes"),
    ("no Ray in quotes", RUN + "ray: 'False'\n",
     "wrong_type", "5:6", "must be true, false or a block", "write `ray: false`"),
    ("Ray as a number", RUN + "ray: 1\n",
     "wrong_type", "5:6", "must be true, false or a block", "`ray: {num_cpus: 8}`"),
    ("Ray as a list", RUN + "ray: [num_cpus]\n",
     "wrong_type", "5:1", "must be true, false or a block of options, not a list", "`ray: true`"),
    ("one port of Ray for two", RUN + "ray: {port: 6379, metrics_export_port: 6379}\n",
     "port_twice", "5:40", "`port` and `metrics_export_port` of the cluster are both 6379",
     "a free port that sgpu chooses"),
    ("a port of Ray that is none", RUN + "ray: {port: 70000}\n",
     "out_of_range", "5:13", "`ray.port` must be from 1 to 65535, not `70000`", "leave it out"),
    ("more GPUs for Ray than the run has", RUN + "ray: {num_gpus: 2000}\n",
     "ray_beyond_run", "5:17", "`ray.num_gpus: 2000` is more than the run has", "leave it out"),
    ("a resource of Ray's own", RUN + "ray: {resources: {GPU: 4}}\n",
     "reserved_resource", "5:19", "is a resource of Ray's own", "use `num_gpus`"),
    ("a resource that Ray counts itself", RUN + "ray: {resources: {memory: 4}}\n",
     "reserved_resource", "5:19", "is a resource of Ray's own", "remove it: Ray counts"),
    ("a resource without a name", RUN + "ray: {resources: {'': 4}}\n",
     "reserved_resource", "5:19", "has no name", "give it one"),
    ("a resource of one node", RUN + "ray: {resources: {'node:a': 1}}\n",
     "reserved_resource", "5:19", "is a name that Ray gives to nodes", "rename it"),
    ("a GPU of Ray in small letters", RUN + "ray: {resources: {gpu: 4}}\n",
     "reserved_resource", "5:19", "is a resource of Ray's own", "use `num_gpus`"),
    ("a resource and a half", RUN + "ray: {resources: {ssd: 1.5}}\n",
     "out_of_range", "5:24", "must be a whole number, not `1.5`", "a task may ask for a part of 1"),
    ("half a resource", RUN + "ray: {resources: {ssd: 0.5}}\n",
     "out_of_range", "5:24", "must be a whole number, not `0.5`", "a task may ask for a part of 1"),
    ("more of a resource than Ray counts", RUN + "ray: {resources: {ssd: 1e300}}\n",
     "out_of_range", "5:24", "must be at most 1e+14, not `1", "a larger unit"),
    ("more CPUs than Ray counts", RUN + "ray: {num_cpus: 100000000000000000000}\n",
     "out_of_range", "5:17", "must be at most 1e+14, not `100000000000000000000`", "leave it out"),
    ("metrics of Ray in no time", RUN + "ray: {metrics_interval: 1ms}\n",
     "bad_duration", "5:25", "must be at least 1s, not `1ms`", "write `10s`"),
    ("a cluster of one node that listens everywhere",
     RUN + "ray: {env: {RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER: '1'}}\n",
     "reserved_variable", "5:13", "sgpu decides about `RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER` itself",
     "listens on loopback"),
    ("the same for all processes",
     RUN + "ray: true\nenv: {variables: {RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER: '1'}}\n",
     "reserved_variable", "6:19", "sgpu decides about `RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER` itself",
     "listens on loopback; or remove `ray`"),
    ("the size of a Ray node as a variable",
     RUN + "ray: true\nenv: {variables: {RAY_OVERRIDE_RESOURCES: '{}'}}\n",
     "reserved_variable", "6:19", "for the Ray cluster of the run", "use `num_cpus`, `num_gpus`"),
    ("a path of Ray's processes alone", RUN + "ray: {env: {PYTHONPATH: lib}}\n",
     "reserved_variable", "5:13", "`PYTHONPATH` must not be set", "in `env.variables`"),
    ("GPUs of Ray's processes alone", RUN + "ray: {env: {CUDA_VISIBLE_DEVICES: '0'}}\n",
     "reserved_variable", "5:13", "`CUDA_VISIBLE_DEVICES` must not be set", "use `num_gpus`"),
    ("a folder of Ray as a variable", RUN + "ray: {env: {RAY_TMPDIR: /x}}\n",
     "reserved_variable", "5:13", "`RAY_TMPDIR` must not be set", "use `temp_dir`"),
    ("a port of ranks beside Ray", RUN + "ray: true\nlaunch: {master_port: 6379}\n",
     "launch_of_ray", "6:10", "`launch.master_port` does not go with `ray`", "`ray.port` is"),
    ("no resource", RUN + "ray: {resources: {ssd: 0}}\n",
     "out_of_range", "5:24", "`ray.resources.ssd` must be more than 0", "leave it out where"),
    ("a store that Ray refuses", RUN + "ray: {object_store_memory: 1MB}\n",
     "bad_size", "5:28", "must be at least 75MiB, not `1MB`", "`1GiB`"),
    ("a relative folder of Ray", RUN + "ray: {temp_dir: scratch}\n",
     "bad_temp_dir", "5:17", "must be an absolute path, not `scratch`", "begin it with /"),
    ("a folder too deep for sockets", RUN + f"ray: {{temp_dir: /{'a' * 34}}}\n",
     "bad_temp_dir", "5:17", "is longer than 34 bytes", "short path"),
    ("Ray in no time", RUN + "ray: {head_startup_timeout: 0s}\n",
     "bad_duration", "5:29", "longer than nothing", "`60s`"),
    ("reserved variable", RUN + "env: {variables: {RANK: 1}}\n",
     "reserved_variable", "5:19", "sgpu sets `RANK` itself", "remove it"),
    ("our own variable", RUN + "env: {secrets: {SGPU_X: env:A}}\n",
     "reserved_variable", "5:17", "sgpu sets `SGPU_X` itself", "remove it"),
    ("malformed variable", RUN + "env: {variables: {A=B: 1}}\n",
     "bad_variable_name", "5:19", "`A=B` is not the name of a variable", "`A: value`"),
    ("variable without a value", RUN + "env: {variables: {A: }}\n",
     "wrong_type", "5:19", "`env.variables.A` must be text, and has no value", '""'),
    ("variable and secret", RUN + "env:\n  variables: {A: b}\n  secrets: {A: env:A}\n",
     "variable_and_secret", "6:15", "`A` is both", "env.secrets"),
    ("two environments", RUN + "env: {snapshot: true, lock: uv.lock}\n",
     "two_environments", "5:23", "`env.snapshot` is a whole environment", "keep one"),
    ("an environment in a run file", RUN + "env: gpu\n",
     "unknown_environment", "5:6", "names no environment: `gpu`", "a run file declares"),
    ("an unknown environment", SHARED.format(env="{use: gup}"),
     "unknown_environment", "2:50", "names no environment: `gup`", "did you mean `gpu`"),
    ("an environment beside a shared one", SHARED.format(env="{use: gpu, python: 3.12}"),
     "two_environments", "2:55", "`env.use` is a whole environment", "environments.gpu"),
    ("not a reference", RUN + "env: {secrets: {A: hunter2}}\n",
     "bad_secret", "5:20", "`env.secrets.A` is not a reference", "env:NAME"),
    ("bad duration", RUN + "timeout: soon\n",
     "bad_duration", "5:10", "`timeout` must be a duration, not `soon`", "`6h`"),
    ("no time at all", RUN + "timeout: 0s\n",
     "bad_duration", "5:10", "longer than nothing", "leave it out"),
    ("no wait", RUN + "hang_after: soon\n",
     "bad_duration", "5:13", "`hang_after` must be a duration or `auto`, not `soon`", "`6h`"),
    ("a wait of nothing", RUN + "hang_after: 0s\n",
     "bad_duration", "5:13", "longer than nothing", "flight_recorder: off"),
    ("no share", RUN + "idle: {below: 500%}\n",
     "bad_percent", "5:15", "above 0 % and up to 100 %", "write `5%`"),
    ("unknown type", RUN.replace("CPU", "H1000"),
     "unknown_gpu_type", "3:7", "must be a type of GPU, not `H1000`", "that series: `H100`, `H20`"),
    ("a type of a size that it does not have", RUN.replace("CPU", "A100_48GB"),
     "unknown_gpu_type", "3:7", "not `A100_48GB`", "as `A100`, `A100_40GB`, `A100_80GB`"),
    ("a type as its driver calls it", RUN.replace("CPU", "NVIDIA A100-SXM4-80GB"),
     "unknown_gpu_type", "3:7", "not `NVIDIA A100-SXM4-80GB`", "write `A100_80GB`"),
    ("a type with letters for digits", RUN.replace("CPU", "H1OO"),
     "unknown_gpu_type", "3:7", "not `H1OO`", "did you mean `H100`?"),
    ("a node with GPUs that are none", RUN.replace("CPU", "GPU_8xH1000"),
     "unknown_gpu_type", "3:7", "not `GPU_8xH1000`", "`GPU_8xH100`, `GPU_8xH20`"),
    ("a word for a type", RUN.replace("CPU", "cuda"),
     "unknown_gpu_type", "3:7", "not `cuda`", "`GPU` is any GPU that the backend has"),
    ("unknown backend", RUN + "backend: databrick\n",
     "unknown_value", "5:10", "there is no backend `databrick`", "did you mean `databricks`?"),
    ("a field of another backend", RUN + "backend: {kind: local, host: a.example}\n",
     "unknown_key", "5:24", "unknown key `host` in `backend`", "to `backend: {kind: databricks}`"),
    ("a field of a backend that is not named", RUN + "backend: {profile: dev}\n",
     "unknown_key", "5:11", "unknown key `profile` in `backend`", "add `kind: databricks`"),
    ("a field of a third backend", RUN + "backend: {kind: databricks, address: auto}\n",
     "unknown_key", "5:29", "unknown key `address` in `backend`", "{kind: ray}"),
    ("the address of Ray Client", RUN + "backend: {kind: ray, address: 'ray://head:10001'}\n",
     "bad_ray_address", "5:31", "not an address of Ray Client", "`http://head:8265`"),
    ("the address of a head", RUN + "backend: {kind: ray, address: 'head:6379'}\n",
     "bad_ray_address", "5:31", "must be the URL of a dashboard", "`http://head:8265`"),
    ("any Ray cluster", RUN + "backend: {kind: ray, address: auto}\n",
     "bad_ray_address", "5:31", "not `auto`", "leave it out for the cluster of this machine"),
    ("a dashboard by another scheme", RUN + "backend: {kind: ray, address: 'ftp://head'}\n",
     "bad_ray_address", "5:31", "begin with `http://`", "`http://head:8265`"),
    ("a dashboard with a port too large", RUN + "backend: {kind: ray, address: 'http://h:70000'}\n",
     "bad_ray_address", "5:31", "is not a usable URL", "`http://127.0.0.1:8265`"),
    ("a dashboard with a question", RUN + "backend: {kind: ray, address: 'http://h/a?x=1'}\n",
     "bad_ray_address", "5:31", "must end with the path", "write `http://h/a`"),
    ("a dashboard with two dots", RUN + "backend: {kind: ray, address: 'http://ray..example'}\n",
     "bad_ray_address", "5:31", "is not a usable URL", "`http://127.0.0.1:8265`"),
    ("an IPv6 address of Ray Client", RUN + "backend: {kind: ray, address: 'ray://[::1]:10001'}\n",
     "bad_ray_address", "5:31", "not an address of Ray Client", "`http://[::1]:8265`"),
    ("a user's name for a dashboard", RUN + "backend: {kind: ray, address: 'http://me@h'}\n",
     "bad_ray_address", "5:31", "no name and no password", "RAY_JOB_HEADERS"),
    ("a misspelt option of the Ray backend", RUN + "backend: {kind: ray, adress: x}\n",
     "unknown_key", "5:22", "unknown key `adress` in `backend`", "did you mean `address`?"),
    ("a token for Ray", RUN + "backend: {kind: ray, token: x}\n",
     "unknown_key", "5:22", "unknown key `token` in `backend`", "read from `RAY_AUTH_TOKEN`"),
    ("no rank on a node", RUN + "backend: {kind: ray, ranks_per_node: 0}\n",
     "out_of_range", "5:38", "`backend.ranks_per_node` must be at least 1, not `0`", ""),
    ("a GPU beside the GPU", RUN + "backend: {kind: ray, resources_per_rank: {GPU: 1}}\n",
     "reserved_resource", "5:43", "a resource of Ray's own", "each rank has one GPU"),
    ("a GPU in small letters beside the GPU",
     RUN + "backend: {kind: ray, resources_per_rank: {gpu: 1}}\n",
     "reserved_resource", "5:43", "a resource of Ray's own", "remove it: each rank has one GPU"),
    ("a type as a resource",
     RUN + "backend: {kind: ray, resources_per_rank: {'accelerator_type:H100': 1}}\n",
     "reserved_resource", "5:43", "stands for a type of GPU", "write `type: H100`"),
    ("a resource of Ray in small letters",
     RUN + "backend: {kind: ray, resources_per_rank: {cpu: 1}}\n",
     "reserved_resource", "5:43", "is `CPU` in Ray", "write `CPU`"),
    ("a size of CPUs", RUN + "backend: {kind: ray, resources_per_rank: {CPU: 16GB}}\n",
     "wrong_type", "5:48", "`CPU` of `resources_per_rank` must be a number, not the size `16",
     "write how many CPUs a rank needs"),
    ("no CPU for a rank", RUN + "backend: {kind: ray, resources_per_rank: {CPU: 0}}\n",
     "out_of_range", "5:48", "`CPU` of `resources_per_rank` must be at least 0.0001, not 0",
     "without `CPU` it has 1"),
    ("none of a resource for a rank",
     RUN + "backend: {kind: ray, resources_per_rank: {ssd: 0}}\n",
     "out_of_range", "5:48", "`ssd` of `resources_per_rank` must be at least 0.0001", "remove it"),
    ("memory in GB without a unit",
     RUN + "backend: {kind: ray, resources_per_rank: {memory: 16}}\n",
     "bad_size", "5:51", "is in bytes", "`16GB`"),
    ("a strategy of Ray's own", RUN + "backend: {kind: ray, strategy: strict}\n",
     "unknown_value", "5:32", "must be one of `spread`, `pack`, not `strict`", ""),
    ("a label with an operator", RUN + "backend: {kind: ray, labels: {market: '!spot'}}\n",
     "bad_ray_label", "5:39", "is not a valid label value", "the one value"),
    ("a label without a name", RUN + "backend: {kind: ray, labels: {'a b': x}}\n",
     "bad_ray_label", "5:31", "is not a valid label name", "`ray.io/market-type`"),
    ("a relative folder of all nodes", RUN + "backend: {kind: ray, storage: team}\n",
     "bad_path", "5:31", "must be an absolute path", ""),
    ("a Python that is found by luck", RUN + "backend: {kind: ray, python: python3}\n",
     "bad_path", "5:30", "must be an absolute path", ""),
    ("a permission for nobody", RUN + "permissions: [{level: view}]\n",
     "contradiction", "5:15", "is for one of `user`, `group`", "group: users"),
    ("a permission for two", RUN + "permissions: [{level: view, user: a, group: b}]\n",
     "contradiction", "5:15", "is for one of `user`, `group`", "one entry for each"),
    ("unknown word in a list", RUN + "retry: {on: [infra, eror]}\n",
     "unknown_value", "5:21", "`retry.on.1` must be one of", "did you mean `error`?"),
    ("infinity in args", RUN + "args: {a: .inf}\n",
     "not_finite", "5:11", "not a finite number", "quotes"),
    ("block that is a list", RUN + "mlflow: [x]\n",
     "wrong_type", "5:1", "`mlflow` must be a mapping, not a list", ""),
    ("empty axis", RUN + "matrix: {lr: []}\n",
     "empty_value", "5:10", "`matrix.lr` is empty", ""),
    ("axis of lists", RUN + "matrix: {lr: [[1]]}\n",
     "wrong_type", "5:15", "`matrix.lr.0` must be text, a number", ""),
    ("axis twice the same", RUN + "matrix: {lr: [1e-3, 0.001]}\n",
     "duplicate_cell", "5:21", "the axis `lr` has `0.001` twice", "keep one"),
    ("axis used nowhere", HEAD + "command: [x]\nmatrix: {lr: [1]}\n",
     "unused_axis", "5:10", "the axis `lr` is used nowhere", "${matrix.lr}"),
    ("axis used nowhere, beside an entrypoint that null takes away",
     HEAD + "command: [x]\nentrypoint: null\nargs: ~\nmatrix: {lr: [1]}\n",
     "unused_axis", "7:10", "the axis `lr` is used nowhere", "${matrix.lr}"),
    ("too many combinations",
     RUN + "matrix:\n" + "".join(f"  a{n}: [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for n in range(9)),
     "matrix_too_large", "6:3", "387,420,489 combinations", "split"),
    ("unknown axis", HEAD + "command: ['${matrix.lr}', '${matrix.x}']\nmatrix: {lr: [1]}\n",
     "unknown_reference", "4:27", "no axis `x`", ""),
    ("matrix of nothing", HEAD + "command: ['${matrix.lr}']\n",
     "unknown_reference", "4:11", "no axis `lr`", "matrix"),
    ("unknown variable", RUN + "description: ${var.x}\n",
     "unknown_reference", "5:14", "no variable `x`", "declare it"),
    ("targets of a wrong kind", RUN + "targets: [a]\n",
     "wrong_type", "5:10", "`targets` must be a mapping", ""),
    ("unknown key in a target", RUN + "targets:\n  p: {gpu: 2}\n",
     "unknown_key", "6:7", "unknown key `gpu` in `targets.p`", "did you mean `gpus`?"),
    ("a target that names no folder", RUN + "targets:\n  dev: {}\n  bad/../name: {gpus: 2}\n",
     "bad_name", "7:3", "`bad/../name` is not a valid name for a target", "take letters, digits"),
    ("a target without a name", RUN + "targets:\n  '': {}\n",
     "bad_name", "6:3", "`` is not a valid name for a target", "take letters, digits"),
    ("a target that is the base", RUN + "targets:\n  default: {gpus: 2}\n",
     "bad_name", "6:3", "`default` is not a valid name for a target", "is what is applied"),
    ("targets in a target", RUN + "targets: {p: {targets: {}}}\n",
     "unknown_key", "5:15", "a target cannot hold targets", ""),
    ("run that is text", "runs: {a: b}\n",
     "wrong_type", "1:8", "`runs.a` must be a mapping", "gpus"),
    ("name in a project", "runs:\n  a: {name: b, gpus: 1, type: CPU, command: x}\n",
     "name_in_project", "2:7", "is its key, `a`", "remove"),
    ("runs that are a list", "runs: []\nproject: {name: p}\n",
     "wrong_type", "1:1", "`runs` must be a mapping", ""),
    ("project without a name", "project: {}\n",
     "missing_key", "1:1", "`project.name` is missing", ""),
    ("job of an unknown run",
     "runs: {a: {gpus: 1, type: CPU, command: x}}\njobs: {j: {run: b}}\n",
     "unknown_run", "2:17", "`jobs.j.run` names no run", ""),
    ("unknown key of a project", "project: {name: p}\nrun: {}\n",
     "unknown_key", "2:1", "unknown key `run`", "did you mean `runs`?"),
    ("a variable of another type",
     HEAD + "command: [x]\nvariables: {n: {type: number, default: x}}\n",
     "wrong_type", "5:40", "`n` must be a number, not `x`", "change its `type`"),
    ("a variable that is none of its values",
     HEAD + "command: [x]\nvariables: {n: {values: [a, b], default: c}}\n",
     "unknown_value", "5:42", "`n` must be one of `a`, `b`, not `c`", "add it to `values`"),
    ("a list inside of text",
     HEAD + "command: [x, 'a ${var.l}']\nvariables: {l: [1]}\n",
     "wrong_type", "4:14", "cannot stand inside of text", "make it the whole value"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code", "place", "summary", "hint"), [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)  # fmt: skip
def test_a_mistake_is_told(
    bad: Bad, text: str, code: str, place: str, summary: str, hint: str
) -> None:
    found = bad(text)
    assert [(one.code, str(one.place)) for one in found] == [(code, f"run.yaml:{place}")]
    assert summary in found[0].summary
    assert hint in (found[0].hint or "")
    shown = excerpt(found[0], text)
    assert "pydantic" not in shown
    assert shown.startswith(f"error[{code}]: ")


@pytest.mark.parametrize(
    "token",
    [
        HF,
        "dapi" + "0123456789abcdef" * 2,
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "a1B2c3D4e5F6" * 3,
    ],
)
@pytest.mark.parametrize(
    "where",
    [
        "env: {{variables: {{A: {}}}}}",
        "args: {{token: 'x {}'}}",
        "description: {}",
        "backend: {}",
        "env: {{secrets: {{A: {}}}}}",
        "timeout: {}",
        "gpus: {}",
        "{}: 1",
        "retry: {{on: [{}]}}",
        "matrix: {{a: [{}]}}",
    ],
)
def test_a_literal_token_is_an_error_and_is_never_repeated(
    bad: Bad, where: str, token: str
) -> None:
    base = HEAD.replace("gpus: 1\n", "") if where.startswith("gpus") else HEAD
    text = base + "entrypoint: a.py:f\n" + where.format(token) + "\n"
    found = bad(text)
    shown = "\n".join(excerpt(one, text) for one in found)
    assert token not in shown
    assert token not in str([one.to_json() for one in found])
    if not where.startswith("{}"):
        assert "literal_token" in [one.code for one in found]
        assert "env.secrets" in shown or "secrets:" in shown


def test_a_private_key_is_an_error_and_is_never_repeated(bad: Bad) -> None:
    text = RUN + (
        "env:\n  variables:\n    K: |\n      -----BEGIN PRIVATE KEY-----\n      MIIEowIBAAKCAQEA\n"
        "      -----END PRIVATE KEY-----\n"
    )
    found = bad(text)
    assert [one.code for one in found] == ["literal_token"]
    assert "MIIE" not in "\n".join(excerpt(one, text) for one in found)


def test_a_password_in_a_url_is_an_error_and_is_never_repeated(bad: Bad) -> None:
    text = RUN + ("mlflow: {tracking_uri: 'https://ann:correct-horse@mlflow.example.com'}\n")
    found = bad(text)
    assert [one.code for one in found] == ["literal_token"]
    assert "correct-horse" not in "\n".join(excerpt(one, text) for one in found)


def test_a_url_that_refers_to_a_password_holds_none(bad: Bad, good: Good) -> None:
    command = "command: git clone https://ann:{}@example.com/repository.git\n"
    assert [one.code for one in bad(HEAD + command.format("s3cret"))] == ["literal_token"]
    good(HEAD + command.format("$TOKEN"))


def test_a_token_from_the_environment_is_found_too(bad: Bad) -> None:
    found = bad(RUN + "env: {variables: {A: '${env.T}'}}\n", environ={"T": HF})
    assert [one.code for one in found] == ["literal_token"]


def test_a_token_in_an_option_is_found_and_hidden(bad: Bad) -> None:
    found = bad(RUN, sets=[("env.variables.T", HF)])
    assert [one.code for one in found] == ["literal_token"]
    assert HF not in str([one.to_json() for one in found])


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        (HEAD + "entrypont: a.py\n", "4:1", "did you mean `entrypoint`?"),
        (HEAD + "comand: [x]\n", "4:1", "did you mean `command`?"),
        ("nmae: a\ngpus: 1\ntype: CPU\ncommand: [x]\n", "1:1", "did you mean `name`?"),
        (HEAD + "entrypont: a.py:f\nmatrix: {lr: [1, 2]}\n", "4:1", "did you mean `entrypoint`?"),
        (
            HEAD + "entrypoint: a.py\narg: {a: 1}\nmatrix: {lr: [1]}\n",
            "5:1",
            "did you mean `args`?",
        ),
        ("runs: {a: {gpu: 1, type: CPU, command: x}}\n", "1:12", "did you mean `gpus`?"),
        ("project: {nmae: p}\nruns: {}\n", "1:11", "did you mean `name`?"),
        (RUN + "targets: {t: {entrypoin: b.py}}\n", "5:15", "did you mean `entrypoint`?"),
    ],
)
def test_what_follows_from_a_misspelt_key_is_not_told(
    bad: Bad, text: str, place: str, hint: str
) -> None:
    (found,) = bad(text)
    assert (found.code, str(found.place), found.hint) == ("unknown_key", f"run.yaml:{place}", hint)


def test_a_contradiction_with_a_misspelt_key_is_told_with_it(bad: Bad) -> None:
    found = bad(HEAD + "comand: [x]\nargs: [a]\nmatrix: {lr: [1]}\n")
    assert [one.code for one in found] == ["unknown_key", "args_of_command", "unused_axis"]


def test_all_mistakes_are_told_at_once_in_order(bad: Bad) -> None:
    found = bad(
        "gpu: 1\ntype: X\ntimeout: soon\nenv: {variables: {RANK: 0}, pyton: 3}\nretry: {max: -1}\n"
    )
    assert [(one.place.line, one.code) for one in found if one.place] == [
        (1, "missing_key"), (1, "no_entrypoint"), (1, "unknown_key"),
        (2, "unknown_gpu_type"), (3, "bad_duration"), (4, "reserved_variable"),
        (4, "unknown_key"), (5, "out_of_range"),
    ]  # fmt: skip


def test_an_overridden_value_shows_both_places(bad: Bad) -> None:
    text = RUN + "targets:\n  big:\n    type: GPU_8xH100\n    gpus: 3\n"
    found = bad(text, "run.yaml", "big")
    assert [(str(one.place), [str(other.place) for other in one.related]) for one in found] == [
        ("run.yaml:8:11", ["run.yaml:2:7"])
    ]
    assert "it overrides the value here" in excerpt(found[0], text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("runs: {a: {gpus: 1, type: CPU, command: x, backend: {host: a.example}}}\n", "1:54"),
        ("functions: {backend: {kind: local, host: a.example}}\n", "1:36"),
        ("jobs: {j: {notebook: {path: /W}, backend: {kind: ray, host: a.example}}}\n", "1:55"),
    ],
)  # fmt: skip
def test_a_field_of_another_backend_is_told_wherever_it_stands(
    bad: Bad, text: str, place: str
) -> None:
    (found,) = bad(text, "sgpu.yml")
    assert (found.code, str(found.place)) == ("unknown_key", f"sgpu.yml:{place}")
    assert "key `host`" in found.summary


def test_a_target_that_changes_the_kind_alone_is_told_how_to_change_the_backend(bad: Bad) -> None:
    text = RUN + "backend: {kind: databricks, host: a.b}\ntargets: {h: {backend: {kind: local}}}\n"
    (found,) = bad(text, "run.yaml", "h")
    assert (found.code, str(found.place)) == ("unknown_key", "run.yaml:5:29")
    assert "writes `backend: local`" in (found.hint or "")


def test_the_backend_of_functions_is_the_remote_one_where_it_is_not_named(
    good: Callable[..., object],
) -> None:
    good("functions: {backend: {profile: dev}}\n", "sgpu.yml")


def test_a_value_that_filled_a_reference_is_shown_beside_it(bad: Bad) -> None:
    text = RUN.replace("gpus: 1", "gpus: ${var.n}") + "variables: {n: '${var.m}', m: many}\n"
    places = {"--var n": [("n", "foo")], "run.yaml:5:16": [], "run.yaml:5:31": []}
    for place, given in places.items():
        (found,) = bad(text, variables=given)
        assert found.code == "wrong_type"
        assert str(found.place) == "run.yaml:2:7"
        assert place in [str(other.place) for other in found.related]
    assert "note: its value comes from here\n  --> --var n" in excerpt(
        bad(text, variables=[("n", "foo")])[0], text
    )


@pytest.mark.parametrize(
    ("timeout", "related"),
    [
        ("${var.a} ${var.b} ${var.a}", ["run.yaml:6:16", "run.yaml:6:22"]),
        ("${matrix.t}", ["run.yaml:7:14"]),
        ("${env.HOME}", []),
    ],
)
def test_every_value_that_filled_a_text_is_shown(
    bad: Bad, timeout: str, related: list[str]
) -> None:
    text = f"{RUN}timeout: {timeout}\nvariables: {{a: x, b: y}}\nmatrix: {{t: [soon]}}\nargs: []\n"
    found = bad(text, environ={"HOME": "/"})
    (wrong,) = (one for one in found if one.code == "bad_duration")
    assert [str(other.place) for other in wrong.related] == related


def test_an_option_names_itself_as_the_place(bad: Bad) -> None:
    found = bad(RUN, sets=[("gpus", "x")])
    assert found[0].summary == "`gpus` must be a whole number, not `x`"
    assert found[0].place is not None
    assert found[0].place.file == "--set gpus"
    assert bad(RUN, sets=[("gpu", "1")])[0].hint == "did you mean `gpus`?"


def test_an_unknown_target_names_the_nearest(bad: Bad) -> None:
    assert bad(RUN + "targets: {prod: {}}\n", "run.yaml", "prd")[0].hint == "did you mean `prod`?"
    assert "declare" in (bad(RUN, "run.yaml", "prod")[0].hint or "")


def test_a_large_run_file_is_not_let_through_as_a_project(bad: Bad) -> None:
    text = RUN + "args:\n  runs: 1\n  xs: [" + "1," * 110_000 + "]\n"
    assert bad(text)[0].code == "too_many_values"
    text = RUN + "description: >\n  runs: 1\n" + "  some words\n" * 90_000
    assert bad(text)[0].code == "file_too_large"


def test_bytes_that_are_no_text_are_told() -> None:
    loaded, found = read(
        b"\xff\xfe", "run.yaml", target=None, variables=(), sets=(), environ={}, git=dict
    )
    assert loaded is None
    assert found[0].code == "not_utf8"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (RUN + "x-common: {a: 1}\n", ["unknown_key"]),
        (RUN + "comand: x\n", ["unknown_key"]),
        (HEAD + "command: [x]\nentrypont: a.py\n", ["unknown_key"]),
        (RUN + "command: ''\n", ["empty_command"]),
        (RUN + "command: {a: 1}\n", ["wrong_type"]),
        (HEAD + "command: [x]\nargs: 5\n", ["wrong_type"]),
        (RUN + "args: x\nmatrix: {lr: [1]}\n", ["wrong_type"]),
        (HEAD + "matrix: {lr: [1]}\n", ["no_entrypoint"]),
        (HEAD + "entrypoint: a b\nmatrix: {lr: [1]}\n", ["bad_entrypoint"]),
        (HEAD + "entrypoint: '${var.e}'\nmatrix: {lr: [1]}\n", ["unknown_reference"]),
        (RUN + "env: {snapshot: maybe, lock: x}\n", ["wrong_type"]),
        (RUN + "env: {variables: {A: [b]}, secrets: {A: env:X}}\n", ["wrong_type"]),
        (RUN + "backend: {knd: databricks, host: a.example}\n", ["unknown_key"]),
        ("a: &c {gpus: 1, type: CPU}\nname: a\n<<: *c\n", ["unknown_key", "merge_key"]),
    ],
)
def test_one_mistake_is_one_error(bad: Bad, text: str, codes: list[str]) -> None:
    assert [one.code for one in bad(text)] == codes


@pytest.mark.parametrize(
    "block", ["{snpshot: true}", "{snapshot: maybe}", "{snapshot: true, lock: x}"]
)
def test_a_mistake_in_what_runs_share_is_told_once(bad: Bad, block: str) -> None:
    run = "{gpus: 1, type: CPU, command: x, env: e}"
    assert (
        len(bad(f"runs:\n  a: {run}\n  b: {run}\nenvironments: {{e: {block}}}\n", "sgpu.yml")) == 1
    )


def test_one_mistake_in_functions_is_one_error(bad: Bad) -> None:
    (found,) = bad("functions: {env: {snapshot: maybe, lock: x}}\n", "sgpu.yml")
    assert found.code == "wrong_type"
