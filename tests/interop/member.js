// What every member in JavaScript does; member.py, java/Member.java and src/member.rs do the same.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const Redis = require('ioredis');

const now = () => process.hrtime.bigint();
// Numbers of the clock stay below 2^53 for the first hundred days after a machine's start; beyond, a nanosecond or two
// are lost.
const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const at = (event) => say({ event, at: Number(now()) });

// Takes turns until the plan's end. `prepare(plan, client)` gives a function that runs work under the lock.
async function run(library, prepare) {
  const plan = JSON.parse(process.argv[2]);
  const client = new Redis(plan.url);
  const underLock = prepare(plan, client);
  await client.ping();
  say({ event: 'ready', library, version: `${version(library)} (ioredis ${version('ioredis')})` });
  await sleep(Math.max(0, (plan.from - Number(now())) / 1e6));
  let special = plan.special;
  while (now() < plan.until) {
    at('asks');
    await underLock(async () => {
      at('holds');
      let workMs = plan.work_ms;
      if (special && now() >= special.at) {
        if (special.dies) process.kill(process.pid, 'SIGKILL');
        workMs = special.work_ms;
        special = null;
      }
      await count(plan.counter, workMs);
      // Before the release: it stops to believe in the lock when it asks for that, not when it has the answer.
      at('releases');
    });
    await sleep(plan.pause_ms);
  }
  client.disconnect();
}

// Two steps with a pause between them: only the lock keeps others from counting the same number.
async function count(counter, workMs) {
  const value = Number(fs.readFileSync(counter, 'utf8'));
  await sleep(workMs);
  fs.writeFileSync(counter, String(value + 1));
}

// Of the installed package, whatever was asked for.
function version(library) {
  const file = path.join(process.env.NODE_PATH, library, 'package.json');
  return JSON.parse(fs.readFileSync(file, 'utf8')).version.replace(/^v/, '');
}

module.exports = { run };
