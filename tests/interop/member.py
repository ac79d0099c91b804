"""What every member in Python does; member.js and src/member.rs do the same."""

import json
import os
import signal
import sys
import time


def run(library, version, connect, prepare):
    """Takes turns until the plan's end. `prepare(plan, client)` gives the lock, as a context manager, and its renewal."""
    plan = json.loads(sys.argv[1])
    client = connect(plan["url"])
    lock, renew = prepare(plan, client)
    say(event="ready", library=library, version=version)
    time.sleep(max(0, plan["from"] - time.monotonic_ns()) / 1e9)
    special = plan["special"]
    while time.monotonic_ns() < plan["until"]:
        say(event="asks", at=time.monotonic_ns())
        with lock:
            say(event="holds", at=time.monotonic_ns())
            work_ms = plan["work_ms"]
            if special and time.monotonic_ns() >= special["at"]:
                if special["dies"]:
                    os.kill(os.getpid(), signal.SIGKILL)
                work_ms, special = special["work_ms"], None
            count(client, plan, work_ms, renew)
            # Before the release: it stops to believe in the lock when it asks for that, not when it has the answer.
            say(event="releases", at=time.monotonic_ns())
        time.sleep(plan["pause_ms"] / 1e3)


def count(client, plan, work_ms, renew):
    """Two commands with a pause between them: only the lock keeps others from counting the same number."""
    value = int(client.get(plan["counter"]) or 0)
    end = time.monotonic() + work_ms / 1e3
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, plan["ttl_ms"] / 3e3))
        if end > time.monotonic():
            renew()
    client.set(plan["counter"], value + 1)


def say(**event):
    print(json.dumps(event), flush=True)
