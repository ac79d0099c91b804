import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryForever;

/** Curator's locks. */
public final class CuratorMember extends Member {
    private final CuratorFramework client;
    private final InterProcessLock mutex;
    private final InterProcessReadWriteLock both;
    private final InterProcessSemaphoreV2 semaphore;

    private CuratorMember(String plan) throws Exception {
        super(plan);
        int ttl = (int) number("ttl_ms");
        String servers = text("url").substring("zk://".length());
        client = CuratorFrameworkFactory.newClient(servers, ttl, ttl, new RetryForever(100));
        client.start();
        client.blockUntilConnected();
        mutex = new InterProcessMutex(client, text("key"));
        both = new InterProcessReadWriteLock(client, text("key"));
        semaphore = new InterProcessSemaphoreV2(client, text("key"), (int) number("limit"));
    }

    public static void main(String[] arguments) throws Exception {
        CuratorMember member = new CuratorMember(arguments[0]);
        member.run("curator", "org.apache.curator/curator-recipes");
        member.client.close();
    }

    @Override
    boolean isShared(int turn) {
        return text("scene").equals("curator-rwlock") && turn % 2 == 0;
    }

    @Override
    Held take(int turn) throws Exception {
        String scene = text("scene");
        if (scene.equals("curator-semaphore")) {
            Lease lease = semaphore.acquire();
            return () -> semaphore.returnLease(lease);
        }
        InterProcessLock lock =
                scene.equals("curator-mutex") ? mutex : isShared(turn) ? both.readLock() : both.writeLock();
        lock.acquire();
        return lock::release;
    }
}
