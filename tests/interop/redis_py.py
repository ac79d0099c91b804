"""redis-py's Lock. It does not renew by itself: `reacquire` does, whenever a third of the time to live has passed."""

import redis

from member import run


def prepare(plan):
    client = redis.Redis.from_url(plan["url"], decode_responses=True)
    # By default it looks ten times a second.
    often = {"sleep": 0.005} if plan["scene"] == "redis-py" else {}
    lock = client.lock(plan["key"], timeout=plan["ttl_ms"] / 1e3, **often)
    return [(lock, False)], lock.reacquire


run("redis-py", redis.__version__, prepare)
