// Gives a server a wall clock of its own, which is ahead of or behind the machine's by what stands in a shared file, or
// stands still at what stands there.
//
// Preloaded into the server's process. Asks the kernel by itself instead of looking for the functions that it stands in
// for: looking for them reads the clock, which is where Debian's faketime and redis-server wait for each other.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

struct shared {
    int64_t offset_ns;
    // How often the clock was read; whoever changes the offset sets it to zero.
    uint64_t readings;
    // Since the epoch; 0 as long as the clock runs.
    int64_t stands_at_ns;
};

static struct shared *shared;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("LOCK_TESTKIT_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) shared = mapped;
}

static void shift(struct timespec *time) {
    if (!shared) return;
    int64_t offset = __atomic_load_n(&shared->offset_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&shared->readings, 1, __ATOMIC_RELAXED);
    int64_t stands_at = __atomic_load_n(&shared->stands_at_ns, __ATOMIC_RELAXED);
    int64_t now = stands_at ? stands_at : time->tv_sec * SECOND + time->tv_nsec + offset;
    time->tv_sec = now / SECOND;
    time->tv_nsec = now % SECOND;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(time);
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
