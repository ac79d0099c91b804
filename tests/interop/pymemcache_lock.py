"""A lock as users of pymemcache write it: `add` takes it, `gets` and `cas` renew it and give it back."""

import math
import random
import time
import urllib.parse
import uuid

import pymemcache

from member import run

# The server counts whole seconds, and errs early.
MARGIN = 2


class Lock:
    def __init__(self, client, key, ttl):
        self.client, self.key, self.seconds = client, key, math.ceil(ttl) + MARGIN

    def __enter__(self):
        self.token = uuid.uuid4().hex.encode()
        while not self.client.add(self.key, self.token, expire=self.seconds, noreply=False):
            time.sleep(random.uniform(0.005, 0.02))

    def __exit__(self, *_):
        # Gone at once.
        self.change(b"", -1)

    def renew(self):
        self.change(self.token, self.seconds)

    def change(self, value, seconds):
        found, unique = self.client.gets(self.key)
        if found != self.token or not self.client.cas(self.key, value, unique, expire=seconds, noreply=False):
            raise RuntimeError(f"{self.key} holds {found}, not {self.token}")


def prepare(plan):
    parts = urllib.parse.urlsplit(plan["url"])
    client = pymemcache.Client((parts.hostname, parts.port), timeout=5, connect_timeout=5, no_delay=True)
    lock = Lock(client, plan["key"], plan["ttl_ms"] / 1e3)
    return [(lock, False)], lock.renew


run("pymemcache", pymemcache.__version__, prepare)
