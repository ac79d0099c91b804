import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Threads that take turns on one InterProcessMutex, through one client. Each line read is a time in ms; the answer is the count. */
public class Turns {
    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[1]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        System.out.println("ready");
        java.util.Scanner in = new java.util.Scanner(System.in);
        while (in.hasNextLong()) {
            long time = in.nextLong();
            AtomicBoolean over = new AtomicBoolean();
            AtomicLong count = new AtomicLong();
            Thread[] all = new Thread[threads];
            for (int i = 0; i < threads; i++) {
                all[i] = new Thread(() -> {
                    InterProcessMutex mutex = new InterProcessMutex(client, "/curator/handover");
                    try {
                        while (!over.get()) {
                            mutex.acquire();
                            count.incrementAndGet();
                            mutex.release();
                        }
                    } catch (Exception e) {
                        e.printStackTrace();
                        System.exit(1);
                    }
                });
                all[i].start();
            }
            Thread.sleep(time);
            over.set(true);
            for (Thread thread : all) {
                thread.join();
            }
            System.out.println(count.get());
        }
        client.close();
    }
}
