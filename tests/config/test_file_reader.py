from collections.abc import Callable

import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.run import RunConfig

Good = Callable[..., Loaded]
HEAD = "name: train\ngpus: 1\ntype: CPU\n"
RUN = HEAD + "entrypoint: train.py:main\n"


def config(loaded: Loaded) -> RunConfig:
    return loaded.runs[0].config


def test_the_least_run(good: Good) -> None:
    loaded = good(RUN)
    run = loaded.runs[0]
    assert str(run.address) == "run.train"
    assert run.spec.text == '{"entrypoint":"train.py:main","gpus":1,"type":"CPU"}'
    assert (loaded.kind, loaded.project_name, loaded.target) == ("run", None, None)
    assert run.config.grace.seconds == 30
    assert run.config.backend.kind == "local"
    assert run.config.retry.on == ("infra",)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("timeout: 360m", "timeout: 6h"),
        ("timeout: 90", "timeout: 1m30s"),
        ("backend: local", "backend: {kind: local}"),
        ("backend: ray", "backend: {kind: ray}"),
        ("grace: 30s", ""),
        ("env:", ""),
        ("env: {variables: {}}", ""),
        ("ray: true", "ray: {}"),
        ("ray: false", ""),
        ("ray: {resources: {ssd: 1}}", "ray: {resources: {ssd: 1.0}}"),
        ("ray: {object_store_memory: 8GB}", "ray: {object_store_memory: 8000000000}"),
        ("retry: {max: 0, on: [infra]}", "retry: {}"),
        ("mlflow: {enabled: true}", "launch: {per: rank}"),
        ("env: {secrets: {A: s/k}}", "env: {secrets: {A: databricks:s/k}}"),
        ("args: {a: 1e-3}", "args: {a: 0.001}"),
        ("args: {a: 0x10, b: 010}", "args: {a: 16, b: 10}"),
    ],
)
def test_two_ways_to_say_the_same_are_the_same(good: Good, one: str, other: str) -> None:
    assert good(RUN + one + "\n").runs[0].spec == good(RUN + other + "\n").runs[0].spec


def test_types_are_normalised(good: Good) -> None:
    for written in ("a10g", "GPU_1xA10", "a10"):
        assert good(RUN.replace("CPU", written)).runs[0].spec.fields["type"] == "A10"


def test_text_is_taken_as_written_where_text_is_wanted(good: Good) -> None:
    loaded = good(
        RUN.replace(":main", "") + "args: [--lr, 1e-3, true, 010]\n"
        "env: {python: 3.10, variables: {F: True, N: 1_0, O: on}}\n"
        "description: 1.50\ntags: {v: 1.0}\nlaunch: {warm: off}\n"
    )
    run = config(loaded)
    assert run.args == ["--lr", "1e-3", "true", "010"]
    assert run.env.python == "3.10"
    assert run.env.variables == {"F": "True", "N": "1_0", "O": "on"}
    assert (run.description, run.tags, run.launch.warm) == ("1.50", {"v": "1.0"}, "off")


def test_arguments_are_typed_by_their_looks(good: Good) -> None:
    run = config(
        good(RUN + "args: {a: 1, b: 1e-3, c: true, d: on, e: '1', f: ~, g: [1, {h: x}]}\n")
    )
    assert run.args == {
        "a": 1, "b": 0.001, "c": True, "d": "on", "e": "1", "f": None, "g": [1, {"h": "x"}],
    }  # fmt: skip


def test_the_shell_keeps_what_is_its_own(good: Good) -> None:
    text = HEAD + "command: |\n  echo $HOME ${HOME:-x} {{ a }} '${{ b }}' ${#x}\n"
    assert config(good(text)).command == "echo $HOME ${HOME:-x} {{ a }} '${{ b }}' ${#x}\n"


def test_places_are_those_of_the_values(good: Good) -> None:
    run = good(RUN + "env:\n  variables:\n    A: b\nargs: {x.y: [1, 2]}\n").runs[0]
    assert str(run.places["gpus"]) == "run.yaml:2:7"
    assert str(run.places["env.variables.A"]) == "run.yaml:7:8"
    assert str(run.places["env"]) == "run.yaml:5:1"
    assert str(run.places["args.x.y.1"]) == "run.yaml:8:17"
    assert "timeout" not in run.places
    assert list(run.places)[:3] == ["name", "gpus", "type"]
    assert len(run.places) == len(list(run.places))


def test_targets_and_options_override_in_order(good: Good) -> None:
    text = (
        RUN + "args: {a: 1, b: 2}\ntargets:\n  big: {gpus: 4, args: {b: 3}}\n  other: {gpus: 9}\n"
    )
    loaded = good(text, "run.yaml", "big", sets=[("args.c", "x"), ("gpus", "2")])
    assert config(loaded).args == {"a": 1, "b": 3, "c": "x"}
    assert config(loaded).gpus == 2
    assert str(loaded.runs[0].places["args.b"]) == "run.yaml:7:28"
    assert loaded.target == "big"


def test_a_target_may_switch_to_a_command(good: Good) -> None:
    run = config(good(RUN + "targets: {x: {entrypoint: null, command: [a]}}\n", "run.yaml", "x"))
    assert (run.entrypoint, run.command) == (None, ("a",))


def test_amounts_are_recorded_as_they_are_written(good: Good) -> None:
    text = RUN + "ray: {resources: {ssd: 1, more: 1e3}, object_store_memory: 8GB}\n"
    assert (
        '"object_store_memory":"8GB","resources":{"more":1000,"ssd":1}'
        in good(text).runs[0].spec.text
    )


def test_a_switched_on_block_takes_options_from_elsewhere(good: Good) -> None:
    text = RUN + "ray: true\ntargets: {big: {ray: {num_cpus: 8}}, none: {ray: false}}\n"
    assert config(good(text)).ray is not None
    assert config(good(text, "run.yaml", "big")).ray.num_cpus == 8
    assert config(good(text, "run.yaml", "none")).ray is None
    assert config(good(text, sets=[("ray.num_cpus", "2")])).ray.num_cpus == 2


def test_a_command_may_be_the_driver_of_a_cluster(good: Good) -> None:
    run = config(
        good(RUN.replace("entrypoint: train.py:main", "command: [python, x.py]") + "ray: true\n")
    )
    assert run.ray is not None
    assert config(good(RUN + "ray: true\nlaunch: {per: node}\n")).launch.per == "node"


def test_variables_of_ray_are_free_without_a_cluster(good: Good) -> None:
    run = config(good(RUN + "env: {variables: {RAY_ADDRESS: auto}}\nlaunch: {per: rank}\n"))
    assert run.env.variables == {"RAY_ADDRESS": "auto"}


def test_set_is_typed_by_the_schema(good: Good) -> None:
    sets = [
        ("env.python", "3.10"),
        ("args.n", "3"),
        ("retry.on", "[error]"),
        ("backend.kind", "ray"),
    ]
    run = config(good(RUN, sets=sets))
    assert run.env.python == "3.10"
    assert run.args == {"n": 3}
    assert run.retry.on == ("error",)
    assert run.backend.kind == "ray"


def test_set_replaces_a_shorthand_by_its_block(good: Good) -> None:
    assert (
        config(good(RUN + "backend: local\n", sets=[("backend.kind", "ray")])).backend.kind == "ray"
    )


def test_references_keep_their_types(good: Good) -> None:
    text = (
        "variables: {n: 2, on: {default: true}, v: 3.10, who: {description: you}}\n"
        "name: train-${var.who}\ngpus: ${var.n}\ntype: CPU\nentrypoint: a.py:f\n"
        "mlflow: {enabled: '${var.on}'}\n"
        "env: {python: '${var.v}', variables: {T: '${target.name}', G: 'at ${git.commit}'}}\n"
        "targets: {dev: {variables: {n: 3}}}\n"
    )
    loaded = good(text, "run.yaml", "dev", variables=[("who", "me")], git=lambda: {"commit": "c0"})
    run = config(loaded)
    assert (run.name, run.gpus, run.env.python) == ("train-me", 3, "3.10")
    assert run.env.variables == {"T": "dev", "G": "at c0"}
    assert run.mlflow.enabled is True


def test_git_is_asked_once_and_only_when_needed(good: Good) -> None:
    calls: list[int] = []

    def git() -> dict[str, str]:
        calls.append(1)
        return {"commit": "c"}

    good(RUN + "description: ${target.name}\n", git=git)
    assert calls == []
    text = "runs:\n" + "".join(
        f"  r{n}: {{gpus: 1, type: CPU, command: ['${{git.commit}}']}}\n" for n in range(3)
    )
    good(text, git=git)
    assert calls == [1]


def test_a_project_lists_its_runs(good: Good) -> None:
    loaded = good(
        "project: {name: shop}\nvariables: {n: 2}\n"
        "runs:\n  a: {gpus: '${var.n}', type: cpu, command: 'echo ${project.name}'}\n"
        "  b: {gpus: 1, type: CPU, entrypoint: 'm:f'}\n"
        "environments: {e: {python: 3.11}}\njobs: {j: {run: a, schedule: '0 0 2 * * ?'}}\n"
        "targets: {p: {runs: {a: {gpus: 4}}}}\n",
        "sgpu.yml",
        "p",
    )
    assert [str(run.address) for run in loaded.runs] == ["run.a", "run.b"]
    assert loaded.runs[0].config.gpus == 4
    assert loaded.runs[0].config.command == "echo shop"
    assert (loaded.kind, loaded.project_name) == ("project", "shop")
    (job,) = loaded.jobs
    assert (str(job.address), job.config.schedule) == ("job.j", "0 0 2 * * ?")
    assert str(job.places["schedule"]).startswith("sgpu.yml:7:")


def test_runs_share_an_environment_of_their_project(good: Good) -> None:
    loaded = good(
        "runs:\n"
        "  a: {gpus: 1, type: CPU, command: a, env: gpu}\n"
        "  b: {gpus: 1, type: CPU, command: b, env: {use: gpu, variables: {A: b}}}\n"
        "environments:\n"
        "  gpu: {dependencies: [torch], python: 3.11}\n"
        "targets: {p: {environments: {gpu: {dependencies: [torch==2.13.0]}}}}\n",
        "sgpu.yml",
        "p",
    )
    for run in loaded.runs:
        assert run.config.env.dependencies == ("torch==2.13.0",)
        assert run.config.env.python == "3.11"
        assert run.config.env.use == "gpu"
        assert run.places["env.python"].line == 5
    assert loaded.runs[1].config.env.variables == {"A": "b"}


def test_a_block_over_a_name_is_laid_over_what_the_name_stands_for(good: Good) -> None:
    text = (
        "runs: {a: {gpus: 1, type: CPU, command: a, env: gpu, backend: databricks}}\n"
        "environments: {gpu: {lock: uv.lock}}\n"
        "targets:\n"
        "  debug: {runs: {a: {env: {variables: {A: 1}}, backend: {profile: p}}}}\n"
        "  other: {runs: {a: {env: {use: ~, snapshot: true}, backend: local}}}\n"
    )
    debug = config(good(text, "sgpu.yml", "debug"))
    assert (debug.env.lock, debug.env.variables) == ("uv.lock", {"A": "1"})
    assert (debug.backend.kind, getattr(debug.backend, "profile", None)) == ("databricks", "p")
    other = config(good(text, "sgpu.yml", "other"))
    assert (other.env.origins, other.backend.kind) == (("snapshot",), "local")
    sets = [("runs.a.backend.profile", "q")]
    assert config(good(text, "sgpu.yml", sets=sets)).backend.kind == "databricks"


def test_an_empty_project_is_fine(good: Good) -> None:
    assert good("project: {name: p}\nruns:\n").runs == ()


def test_comments_and_order_do_not_change_the_digest(good: Good) -> None:
    before = good(RUN)
    after = good("# hello\n" + "entrypoint: train.py:main\n" + HEAD)
    assert before.config_digest == after.config_digest
    assert before.config_digest != good(RUN.replace("gpus: 1", "gpus: 2")).config_digest


def test_blocks_whose_engine_comes_later_are_valid(good: Good) -> None:
    good(
        RUN + "ray: {object_store_memory: 2GiB}\n"
        "env: {dependencies: [torch>=2.6], requirements: r.txt, base: gpu-4}\n"
        "pool: p\npriority: 50\npermissions: [{level: view, group: all}]\nbudget: b\nimage: i\n"
        "on_finish: {failure: [me@example.com]}\n"
        "lifecycle: {prevent_destroy: true, ignore_changes: [env.variables]}\n"
        "code: {root: src, include: [a], exclude: [b], link: [data]}\nuntil: always\n"
        "on_active: queue\nstartup_timeout: 5m\nprogress_timeout: 10m\n"
    )
