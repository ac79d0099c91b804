// node-redlock on one server. `using` extends the lock by itself.
'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { default: Redlock } = require('redlock');
const { run } = require('./member');

run('redlock', (plan, client) => {
  // Its lease counts from its first try, however many follow: after a wait as long as that, it would count as expired
  // at once. So each try is one of its own, as far apart as its retries are.
  const redlock = new Redlock([client], { retryCount: 0 });
  redlock.on('error', () => {}); // each try that finds the lock held, and more: what matters is thrown as well
  const { retryDelay, retryJitter } = redlock.settings;
  return async (work) => {
    for (;;) {
      let granted = false;
      try {
        return await redlock.using([plan.key], plan.ttl_ms, async (signal) => {
          granted = true;
          await work();
          if (signal.aborted) throw signal.error;
        });
      } catch (error) {
        if (granted) throw error;
      }
      await sleep(retryDelay + (Math.random() * 2 - 1) * retryJitter);
    }
  };
});
