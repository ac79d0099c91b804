import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What every member in Java does; member.py, member.js and src/member.rs do the same. */
abstract class Member {
    private final String plan;
    private final String special;

    /** One turn's grant. */
    interface Held {
        void release() throws Exception;
    }

    /** With the plan, which is the program's only argument. */
    Member(String plan) {
        int at = plan.indexOf("\"special\"");
        this.plan = plan.substring(0, at);
        this.special = plan.substring(at);
    }

    /** Whether this turn's grant is a reader's. */
    boolean isShared(int turn) {
        return false;
    }

    abstract Held take(int turn) throws Exception;

    /** Takes turns until the plan's end. */
    void run(String library, String artifact) throws Exception {
        say("\"event\":\"ready\",\"library\":\"" + library + "\",\"version\":\"" + version(artifact) + "\"");
        Thread.sleep(Math.max(0, (number("from") - System.nanoTime()) / 1_000_000));
        boolean isSpecial = true;
        for (int turn = 0; System.nanoTime() < number("until"); turn++) {
            boolean shared = isShared(turn);
            at("asks");
            Held held = take(turn);
            say("\"event\":\"holds\",\"at\":" + System.nanoTime() + ",\"shared\":" + shared);
            long work = number("work_ms");
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
            Thread.sleep(number("pause_ms"));
        }
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

    /** Of the jar that is there, whatever was asked for. */
    private static String version(String artifact) throws IOException {
        Properties properties = new Properties();
        try (var file = Member.class.getResourceAsStream("/META-INF/maven/" + artifact + "/pom.properties")) {
            properties.load(file);
        }
        return properties.getProperty("version");
    }

    private static void at(String event) {
        say("\"event\":\"" + event + "\",\"at\":" + System.nanoTime());
    }

    private static void say(String fields) {
        System.out.println("{" + fields + "}");
        System.out.flush();
    }

    String text(String name) {
        return find(plan, name, "\"([^\"]*)\"");
    }

    long number(String name) {
        return number(plan, name);
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
