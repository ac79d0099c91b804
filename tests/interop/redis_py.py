"""redis-py's Lock. It does not renew by itself: `reacquire` does, whenever a third of the time to live has passed."""

import redis

from member import run


def connect(url):
    return redis.Redis.from_url(url, decode_responses=True)


def prepare(plan, client):
    lock = client.lock(plan["key"], timeout=plan["ttl_ms"] / 1e3)
    return lock, lock.reacquire


run("redis-py", redis.__version__, connect, prepare)
