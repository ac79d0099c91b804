import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's locks: one kind of them, by one client. */
public final class CuratorPeer extends Peer {
    private final CuratorFramework client;
    private final String kind;

    private CuratorPeer(String address, String kind) throws Exception {
        client = CuratorFrameworkFactory.newClient(address, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        this.kind = kind;
    }

    public static void main(String[] arguments) throws Exception {
        new CuratorPeer(arguments[0], arguments[1]).serve();
    }

    @Override
    Turn turn(String name) {
        String path = "/curator/" + kind + "/" + name;
        if (kind.equals("permit")) {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, 1);
            return holds -> {
                Lease lease = semaphore.acquire();
                holds.run();
                semaphore.returnLease(lease);
            };
        }
        InterProcessMutex mutex = kind.equals("write")
                ? new InterProcessReadWriteLock(client, path).writeLock()
                : new InterProcessMutex(client, path);
        return holds -> {
            mutex.acquire();
            holds.run();
            mutex.release();
        };
    }
}
