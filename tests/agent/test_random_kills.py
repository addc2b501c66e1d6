"""Whatever is killed whenever: the attempt ends, tells one story, and nothing is left.

`SGPU_KILLS` says how many attempts are treated so; the number of each is its seed.
"""

import os
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import clear_remains, request_cancel
from sgpu_decl.agent.system.processes import send_signal, start_time
from sgpu_decl.rendering.spec import RetrySpec
from tests.sampling import sampled

COUNT = int(os.environ.get("SGPU_KILLS", "12"))
RANK = """
import random
random.seed(%d + rank)
if random.random() < 0.3:
    daemon(block, new_session=random.random() < 0.5)
if random.random() < 0.3:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
up()
time.sleep(random.random() * 0.3)
sys.exit(random.choice((0, 0, 0, 3)))
"""


@pytest.mark.parametrize("seed", sampled(range(COUNT)))
def test_random_kills(make_faulty: Callable[..., Any], seed: int) -> None:
    dice = random.Random(seed)
    retry = RetrySpec(max=dice.choice((0, 1)), on=("infra", "error"), backoff=0.01)
    attempt = make_faulty(RANK % (1000 * seed), retry=retry, grace=0.1).launch()
    agents = [(pid, start_time(pid)) for pid in (attempt.guardian, attempt.supervisor)]
    for _ in range(dice.choice((1, 1, 2, 3))):
        signal.sigtimedwait((), dice.random() * 0.2)
        action = dice.choice(("guardian", "supervisor", "rank", "cancel", "term"))
        if action == "cancel":
            request_cancel(attempt.folder)
        elif action == "rank":
            for pid, started in attempt.carriers()[:1]:
                send_signal(pid, started, signal.SIGKILL)
        else:
            number = signal.SIGTERM if action == "term" else signal.SIGKILL
            send_signal(*agents[action != "guardian"], number)
    ended = attempt.wait()
    attempt.until(lambda: not any(start_time(pid) == started for pid, started in agents))
    clear_remains(attempt.folder, grace=0.1)
    attempt.until_gone()
    assert attempt.read() == ended or ended["state"] == "lost"
    attempt.check(crash=True)
