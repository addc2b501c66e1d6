import os
import signal

import pytest

from sgpu_decl.cli.interrupts import InterruptDecision, Interrupts, Signals


def decide(
    machine: Interrupts, presses: int, now: float, *, terminated: bool = False
) -> InterruptDecision:
    return machine.decide(presses=presses, terminated=terminated, now=now)


def test_without_a_signal_it_goes_on() -> None:
    machine = Interrupts(interactive=True)
    assert decide(machine, 0, 0.0) is InterruptDecision.GO_ON
    assert decide(machine, 0, 1e6) is InterruptDecision.GO_ON


def test_first_press_announces_once_and_leaves_after_five_seconds() -> None:
    machine = Interrupts(interactive=True)
    assert decide(machine, 1, 10.0) is InterruptDecision.ANNOUNCE
    assert decide(machine, 1, 10.1) is InterruptDecision.GO_ON
    assert decide(machine, 1, 14.9) is InterruptDecision.GO_ON
    assert decide(machine, 1, 15.0) is InterruptDecision.DETACH
    assert not machine.cancelling


def test_second_press_cancels_and_waits_without_end() -> None:
    machine = Interrupts(interactive=True)
    decide(machine, 1, 10.0)
    assert decide(machine, 2, 12.0) is InterruptDecision.CANCEL
    assert machine.cancelling
    assert decide(machine, 2, 100.0) is InterruptDecision.GO_ON


def test_third_press_leaves_at_once() -> None:
    machine = Interrupts(interactive=True)
    decide(machine, 1, 10.0)
    decide(machine, 2, 11.0)
    assert decide(machine, 3, 11.1) is InterruptDecision.LEAVE


def test_two_presses_between_two_looks_cancel() -> None:
    assert decide(Interrupts(interactive=True), 2, 10.0) is InterruptDecision.CANCEL


@pytest.mark.parametrize(("presses", "terminated"), [(1, False), (0, True), (3, False)])
def test_off_a_terminal_one_signal_detaches(presses: int, terminated: bool) -> None:
    machine = Interrupts(interactive=False)
    assert decide(machine, presses, 0.0, terminated=terminated) is InterruptDecision.DETACH


def test_termination_detaches_on_a_terminal_too() -> None:
    assert decide(Interrupts(interactive=True), 0, 0.0, terminated=True) is InterruptDecision.DETACH


def test_signals_are_counted_inside_and_given_back_after() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Signals() as signals:
        assert not signals.any
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.presses == 2
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.terminated
    assert signal.getsignal(signal.SIGINT) is before
