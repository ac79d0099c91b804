// redis-semaphore's Mutex. It refreshes the lock by itself, and ends the process when it finds it lost.
'use strict';

const { Mutex } = require('redis-semaphore');
const { run } = require('./member');

run('redis-semaphore', (plan, client) => {
  const mutex = new Mutex(client, plan.key.replace(/^mutex:/, ''), { lockTimeout: plan.ttl_ms }); // it adds the prefix
  return async (work) => {
    await mutex.acquire();
    try {
      await work();
    } finally {
      await mutex.release();
    }
  };
});
