// redsync's mutex, at the servers that the arguments name: goroutines that lock and release, as the lines of the standard input say: scene, goroutines, milliseconds.
// The answer is a rate.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	var pools []pool.Pool
	for _, url := range os.Args[1:] {
		options, err := redis.ParseURL(url)
		check(err)
		options.PoolSize = 64
		client := redis.NewClient(options)
		check(client.Ping(context.Background()).Err())
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redsync.New(pools...)
	fmt.Println("ready")
	for {
		var scene string
		var tasks, milliseconds int
		if _, err := fmt.Scan(&scene, &tasks, &milliseconds); err != nil {
			return
		}
		fmt.Println(rate(locks, scene == "free", tasks, time.Duration(milliseconds)*time.Millisecond))
	}
}

func rate(locks *redsync.Redsync, free bool, tasks int, length time.Duration) float64 {
	var all, handedOver, last atomic.Int64
	var running sync.WaitGroup
	start := time.Now()
	for task := range tasks {
		name := "redsync:hand-over"
		if free {
			name = "redsync:free-" + strconv.Itoa(task)
		}
		mutex := locks.NewMutex(name, redsync.WithExpiry(10*time.Second), redsync.WithTries(1<<30))
		running.Go(func() {
			for time.Since(start) < length {
				check(mutex.Lock())
				all.Add(1)
				if last.Swap(int64(task)+1) != int64(task)+1 {
					handedOver.Add(1)
				}
				_, err := mutex.Unlock()
				check(err)
			}
		})
	}
	running.Wait()
	count := &handedOver
	if free {
		count = &all
	}
	return float64(count.Load()) / time.Since(start).Seconds()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
