"""What every member in Python does; member.js, java/Member.java and src/member.rs do the same."""

import json
import os
import signal
import sys
import time


def run(library, version, prepare):
    """Takes turns until the plan's end. `prepare(plan)` gives the locks, taken by turns, each as a context manager and whether
    it is shared, and their renewal."""
    plan = json.loads(sys.argv[1])
    locks, renew = prepare(plan)
    say(event="ready", library=library, version=version)
    time.sleep(max(0, plan["from"] - time.monotonic_ns()) / 1e9)
    special, turn = plan["special"], 0
    while time.monotonic_ns() < plan["until"]:
        lock, shared = locks[turn % len(locks)]
        turn += 1
        say(event="asks", at=time.monotonic_ns())
        with lock:
            say(event="holds", at=time.monotonic_ns(), shared=shared)
            work_ms = plan["work_ms"]
            if special and time.monotonic_ns() >= special["at"]:
                if special["dies"]:
                    os.kill(os.getpid(), signal.SIGKILL)
                work_ms, special = special["work_ms"], None
            count(plan, work_ms, renew, shared)
            # Before the release: it stops to believe in the lock when it asks for that, not when it has the answer.
            say(event="releases", at=time.monotonic_ns())
        time.sleep(plan["pause_ms"] / 1e3)


def count(plan, work_ms, renew, shared):
    """Two steps with a pause between them: only the lock keeps others from counting the same number. Readers only look."""
    with open(plan["counter"]) as file:
        value = int(file.read() or 0)
    end = time.monotonic() + work_ms / 1e3
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, plan["ttl_ms"] / 3e3))
        if end > time.monotonic():
            renew()
    if not shared:
        with open(plan["counter"], "w") as file:
            file.write(str(value + 1))


def say(**event):
    print(json.dumps(event), flush=True)
