// redsync's mutex on one server; member.py, member.js and src/member.rs do the same. It does not renew by itself: Extend
// does, whenever a third of the time to live has passed.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type special struct {
	At     int64 `json:"at"`
	WorkMs int64 `json:"work_ms"`
	Dies   bool  `json:"dies"`
}

type plan struct {
	URL     string  `json:"url"`
	Key     string  `json:"key"`
	Counter string  `json:"counter"`
	TTLMs   int64   `json:"ttl_ms"`
	WorkMs  int64   `json:"work_ms"`
	PauseMs int64   `json:"pause_ms"`
	From    int64   `json:"from"`
	Until   int64   `json:"until"`
	Special special `json:"special"`
}

func main() {
	var plan plan
	check(json.Unmarshal([]byte(os.Args[1]), &plan))
	options, err := redis.ParseURL(plan.URL)
	check(err)
	client := redis.NewClient(options)
	check(client.Ping(context.Background()).Err())
	// It asks again after 50 to 250 ms, as by default, but for as long as it takes.
	mutex := redsync.New(goredis.NewPool(client)).NewMutex(
		plan.Key, redsync.WithExpiry(time.Duration(plan.TTLMs)*time.Millisecond), redsync.WithTries(1<<30))
	say(map[string]any{"event": "ready", "library": "redsync", "version": version()})
	time.Sleep(time.Duration(max(0, plan.From-now())))
	isSpecial := true
	for now() < plan.Until {
		at("asks")
		check(mutex.Lock())
		at("holds")
		work := plan.WorkMs
		if isSpecial && now() >= plan.Special.At {
			if plan.Special.Dies {
				check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
			}
			work, isSpecial = plan.Special.WorkMs, false
		}
		count(plan, time.Duration(work)*time.Millisecond, mutex)
		// Before the release: it stops to believe in the lock when it asks for that, not when it has the answer.
		at("releases")
		_, err := mutex.Unlock()
		check(err)
		time.Sleep(time.Duration(plan.PauseMs) * time.Millisecond)
	}
}

// Two steps with a pause between them: only the lock keeps others from counting the same number.
func count(plan plan, work time.Duration, mutex *redsync.Mutex) {
	text, err := os.ReadFile(plan.Counter)
	check(err)
	value, err := strconv.ParseInt(string(text), 10, 64)
	check(err)
	end := time.Now().Add(work)
	for left := work; left > 0; left = time.Until(end) {
		time.Sleep(min(left, time.Duration(plan.TTLMs)*time.Millisecond/3))
		if time.Until(end) > 0 {
			_, err := mutex.Extend()
			check(err)
		}
	}
	check(os.WriteFile(plan.Counter, []byte(strconv.FormatInt(value+1, 10)), 0o644))
}

// now is CLOCK_MONOTONIC, in nanoseconds.
func now() int64 {
	var time syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&time)), 0)
	if failed != 0 {
		check(failed)
	}
	return time.Nano()
}

func version() string {
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == "github.com/go-redsync/redsync/v4" {
			return module.Version[1:]
		}
	}
	return "unknown"
}

func at(event string) { say(map[string]any{"event": event, "at": now()}) }

func say(event map[string]any) {
	line, err := json.Marshal(event)
	check(err)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
