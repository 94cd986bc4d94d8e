// Runs inside the machine: pushes values of one tag until it is stopped, and records the timestamp of each acknowledged
// value. An unacknowledged request is repeated unchanged, as a careful program in the plant would do.
//   pusher.mjs FILE TAG KEY PAUSE_MS
import { appendFileSync, openSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

const [file, tag, key, pauseMs] = process.argv.slice(2);
const acknowledged = openSync(file, 'a');
let timestamp = Date.now();
for (;;) {
  const values = [];
  for (let i = 0; i < 10; i++) values.push({ tag, key, value: (timestamp % 1000) / 10, timestamp: timestamp++ });
  while (!(await push(values))) await delay(50);
  appendFileSync(acknowledged, `${values.map((value) => value.timestamp).join('\n')}\n`);
  timestamp = Math.max(timestamp, Date.now());
  await delay(Number(pauseMs));
}

async function push(values) {
  try {
    const answer = await fetch('http://127.0.0.1:8470/v1/values', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ values }),
      signal: AbortSignal.timeout(5000),
    });
    return answer.status === 204;
  } catch {
    return false;
  }
}
