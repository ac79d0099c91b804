"""A lock as users of pymemcache write it: threads that lock and release, as the lines of the standard input say: scene, threads,
milliseconds. The answer is a rate."""

import random
import sys
import threading
import time
import uuid

from pymemcache.client.base import Client


class Lock:
    def __init__(self, address, key):
        self.client = Client(address, timeout=5, connect_timeout=5, no_delay=True)
        self.key = key

    def acquire(self):
        self.token = uuid.uuid4().hex.encode()
        while not self.client.add(self.key, self.token, expire=10, noreply=False):
            time.sleep(random.uniform(0.005, 0.02))

    def release(self):
        found, unique = self.client.gets(self.key)
        if found != self.token or not self.client.cas(self.key, b"", unique, expire=-1, noreply=False):
            raise RuntimeError(f"{self.key} holds {found}")


def rate(address, free, tasks, seconds):
    counts, last, start = [0, 0], [None], time.monotonic()

    def work(task):
        lock = Lock(address, f"pymemcache:free-{task}" if free else "pymemcache:hand-over")
        own = 0
        while time.monotonic() - start < seconds:
            lock.acquire()
            own += 1
            # Only who holds the lock writes here.
            if not free and last[0] != task:
                last[0] = task
                counts[1] += 1
            lock.release()
        with guard:
            counts[0] += own

    guard = threading.Lock()
    threads = [threading.Thread(target=work, args=(task,)) for task in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts[0 if free else 1] / (time.monotonic() - start)


host, port = sys.argv[1].rsplit(":", 1)
print("ready", flush=True)
for line in sys.stdin:
    scene, tasks, milliseconds = line.split()
    print(rate((host, int(port)), scene == "free", int(tasks), int(milliseconds) / 1e3), flush=True)
