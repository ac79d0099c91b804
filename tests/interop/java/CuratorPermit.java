import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryForever;

/** One permit of Curator's semaphore, taken and given back as its standard input says; src/late.rs writes it. */
public final class CuratorPermit {
    private CuratorPermit() {}

    /** With the server, the path, and the session's milliseconds. */
    public static void main(String[] arguments) throws Exception {
        int session = Integer.parseInt(arguments[2]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(arguments[0], session, session, new RetryForever(100));
        client.start();
        client.blockUntilConnected();
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, arguments[1], 1);
        Lease lease = null;
        say("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            if (order.equals("acquire")) {
                lease = semaphore.acquire();
                say("holds");
            } else {
                semaphore.returnLease(lease);
                say("released");
            }
        }
        client.close();
    }

    private static void say(String what) {
        System.out.println(what);
        System.out.flush();
    }
}
