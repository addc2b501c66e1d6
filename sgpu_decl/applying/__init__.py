"""Carrying a plan out, one effect per step, each recorded at once.

    lock ─▶ commit intents ─▶ stage ─▶ launch ─▶ record, close intents ─▶ unlock ─▶ follow

Intents are committed and closed by one thread in the order of the plan; staging and launching
overlap. Launches that may have to wait for room (`max_parallel`, GPUs) start one after the other,
so that they stand in line in that order. A launch that cannot be recorded (a full disk) is a
warning: the run is followed, its intent stays open, and the next apply records it.

A replacing attempt is launched with `wait_for` the old ones, which are then asked to stop: its own
supervisor waits, so nobody else has to stay. Where a platform starts what it is given, apply waits
instead, without the lock (`held_launches`):

    lock ─▶ commit intents ─▶ stage, ask the old ones to stop ─▶ unlock ─▶ wait
    lock ─▶ record their ends ─▶ launch what is open still ─▶ record, close intents ─▶ unlock

If it dies in between, the next apply finds the open intents, waits in the same way, and launches.

If another sgpu changed the state meanwhile, apply makes the plan again. A saved plan is refused
instead, since exactly that plan was approved.
"""
