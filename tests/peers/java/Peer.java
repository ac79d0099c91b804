import java.util.Scanner;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/** Threads that lock and release, as the lines of the standard input say: scene, threads, milliseconds. The answer is a rate. */
abstract class Peer {
    /** One thread's lock. */
    interface Turn {
        /** Locks, says that it holds, and releases. */
        void go(Runnable holds) throws Exception;
    }

    /** The lock of this name, for one thread. */
    abstract Turn turn(String name) throws Exception;

    void serve() throws Exception {
        System.out.println("ready");
        System.out.flush();
        Scanner orders = new Scanner(System.in);
        while (orders.hasNext()) {
            boolean free = orders.next().equals("free");
            int threads = orders.nextInt();
            System.out.println(rate(free, threads, orders.nextLong() * 1_000_000));
            System.out.flush();
        }
        System.exit(0);
    }

    private double rate(boolean free, int threads, long time) throws Exception {
        AtomicLong all = new AtomicLong();
        AtomicLong handedOver = new AtomicLong();
        AtomicReference<Thread> last = new AtomicReference<>();
        long start = System.nanoTime();
        Thread[] running = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            Turn turn = turn(free ? "free-" + i : "hand-over");
            running[i] = new Thread(() -> {
                Runnable holds = () -> {
                    all.incrementAndGet();
                    if (last.getAndSet(Thread.currentThread()) != Thread.currentThread()) {
                        handedOver.incrementAndGet();
                    }
                };
                try {
                    while (System.nanoTime() - start < time) {
                        turn.go(holds);
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
            running[i].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        return (free ? all : handedOver).get() / ((System.nanoTime() - start) / 1e9);
    }
}
