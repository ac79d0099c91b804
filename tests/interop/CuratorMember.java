import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryForever;

/** Curator's locks; member.py, member.js and src/member.rs do the same. */
public final class CuratorMember {
    private final String plan;
    private final String special;

    /** One turn's grant. */
    private interface Held {
        void release() throws Exception;
    }

    private CuratorMember(String plan) {
        int at = plan.indexOf("\"special\"");
        this.plan = plan.substring(0, at);
        this.special = plan.substring(at);
    }

    public static void main(String[] arguments) throws Exception {
        new CuratorMember(arguments[0]).run();
    }

    private void run() throws Exception {
        String scene = text("scene");
        String path = text("key");
        int ttl = (int) number(plan, "ttl_ms");
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(text("url").substring("zk://".length()), ttl, ttl, new RetryForever(100));
        client.start();
        client.blockUntilConnected();
        InterProcessLock mutex = new InterProcessMutex(client, path);
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, (int) number(plan, "limit"));
        String version = System.getProperty("curator.version", "of Debian");
        say("\"event\":\"ready\",\"library\":\"curator\",\"version\":\"" + version + "\"");
        Thread.sleep(Math.max(0, (number(plan, "from") - System.nanoTime()) / 1_000_000));
        boolean isSpecial = true;
        for (int turn = 0; System.nanoTime() < number(plan, "until"); turn++) {
            boolean shared = scene.equals("curator-rwlock") && turn % 2 == 0;
            at("asks");
            Held held;
            if (scene.equals("curator-semaphore")) {
                Lease lease = semaphore.acquire();
                held = () -> semaphore.returnLease(lease);
            } else {
                InterProcessLock lock =
                        scene.equals("curator-mutex") ? mutex : shared ? both.readLock() : both.writeLock();
                lock.acquire();
                held = lock::release;
            }
            say("\"event\":\"holds\",\"at\":" + System.nanoTime() + ",\"shared\":" + shared);
            long work = number(plan, "work_ms");
            if (isSpecial && System.nanoTime() >= number(special, "at")) {
                if (special.contains("\"dies\":true")) {
                    new ProcessBuilder("kill", "-KILL", Long.toString(ProcessHandle.current().pid())).start().waitFor();
                }
                work = number(special, "work_ms");
                isSpecial = false;
            }
            count(Path.of(text("counter")), work, shared);
            // Before the release: it stops to believe in the lock when it asks for that, not when it has the answer.
            at("releases");
            held.release();
            Thread.sleep(number(plan, "pause_ms"));
        }
        client.close();
    }

    /** Two steps with a pause between them: only the lock keeps others from counting the same number. Readers only look. */
    private static void count(Path counter, long workMs, boolean shared) throws IOException, InterruptedException {
        String text = Files.readString(counter);
        long value = text.isEmpty() ? 0 : Long.parseLong(text);
        Thread.sleep(workMs);
        if (!shared) {
            Files.writeString(counter, Long.toString(value + 1));
        }
    }

    private static void at(String event) {
        say("\"event\":\"" + event + "\",\"at\":" + System.nanoTime());
    }

    private static void say(String fields) {
        System.out.println("{" + fields + "}");
        System.out.flush();
    }

    private String text(String name) {
        return find(plan, name, "\"([^\"]*)\"");
    }

    private static long number(String json, String name) {
        return Long.parseLong(find(json, name, "([0-9]+)"));
    }

    /** The plan has no nested fields of these names, and no text that would have to be unescaped. */
    private static String find(String json, String name, String value) {
        Matcher matcher = Pattern.compile("\"" + name + "\":" + value).matcher(json);
        if (!matcher.find()) {
            throw new IllegalArgumentException("the plan has no " + name);
        }
        return matcher.group(1);
    }
}
