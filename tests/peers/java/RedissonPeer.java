import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's locks: one kind of them, at one server. */
public final class RedissonPeer extends Peer {
    private final RedissonClient client;
    private final String kind;

    private RedissonPeer(String url, String kind) {
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        client = Redisson.create(config);
        this.kind = kind;
    }

    public static void main(String[] arguments) throws Exception {
        new RedissonPeer(arguments[0], arguments[1]).serve();
    }

    @Override
    Turn turn(String name) {
        String key = "redisson:" + kind + ":" + name;
        if (kind.equals("permit")) {
            RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(key);
            semaphore.trySetPermits(1);
            return holds -> {
                String permit = semaphore.acquire(10, TimeUnit.SECONDS);
                holds.run();
                semaphore.release(permit);
            };
        }
        RLock lock = switch (kind) {
            case "lock" -> client.getLock(key);
            case "fair" -> client.getFairLock(key);
            case "fenced" -> client.getFencedLock(key);
            case "write" -> client.getReadWriteLock(key).writeLock();
            default -> throw new IllegalArgumentException(kind);
        };
        return holds -> {
            lock.lock();
            holds.run();
            lock.unlock();
        };
    }
}
