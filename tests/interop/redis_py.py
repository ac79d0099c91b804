"""redis-py's Lock. It does not renew by itself: `reacquire` does, whenever a third of the time to live has passed."""

import redis

from member import run


def prepare(plan):
    client = redis.Redis.from_url(plan["url"], decode_responses=True)
    lock = client.lock(plan["key"], timeout=plan["ttl_ms"] / 1e3)
    return [(lock, False)], lock.reacquire


run("redis-py", redis.__version__, prepare)
