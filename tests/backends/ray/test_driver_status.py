"""What the status of the driver repeats of the status of the first agent."""


def test_the_ray_cluster_of_a_run_is_shown_while_the_run_goes_on() -> None:
    from sgpu_decl.backends.ray.cluster.driver import _status_fields

    ray = {"version": "2.60.0", "nodes": 2, "dashboard": None, "token_file": "/t"}

    fields = _status_fields({"state": "running", "ray": ray, "waiting_for": "backoff"})

    assert fields["ray"] == ray
    assert fields["waiting_for"] == "backoff"
    assert fields["state"] == "running"
