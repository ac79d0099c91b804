import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's lock. Its watchdog renews it. */
public final class RedissonMember extends Member {
    private final RedissonClient client;
    private final RLock lock;

    private RedissonMember(String plan) {
        super(plan);
        Config config = new Config();
        config.setThreads(2);
        config.setNettyThreads(2);
        config.setLockWatchdogTimeout(number("ttl_ms"));
        config.useSingleServer()
                .setAddress(text("url"))
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionPoolSize(2);
        client = Redisson.create(config);
        lock = client.getLock(text("key"));
    }

    public static void main(String[] arguments) throws Exception {
        RedissonMember member = new RedissonMember(arguments[0]);
        member.run("redisson", "org.redisson/redisson");
        member.client.shutdown();
    }

    @Override
    Held take(int turn) {
        lock.lock();
        return lock::unlock;
    }
}
