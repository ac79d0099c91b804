"""kazoo's Lock, or its ReadLock and WriteLock by turns. Its session renews them."""

import os

import kazoo.version
from kazoo.client import KazooClient

from member import run


def prepare(plan):
    client = KazooClient(hosts=plan["url"].removeprefix("zk://"), timeout=plan["ttl_ms"] / 1e3)
    client.start()
    path = plan["key"]
    if plan["scene"] == "kazoo-rwlock":
        locks = [(client.ReadLock(path), True), (client.WriteLock(path), False)]
    else:
        locks = [(client.Lock(path), False)]
    return locks, lambda: None


run("kazoo", kazoo.version.__version__, prepare)
# Its threads would keep the process; the session ends with it.
os._exit(0)
