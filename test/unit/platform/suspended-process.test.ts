import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { afterEach, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import { HttpBoundary } from '../../../src/platform/http-boundary.ts';

const DEADLINE_MS = 15_000;
/** Values of the flag: request received, response allowed, response passed to the kernel. */
const [ASKED, MAY_ANSWER, ANSWERED] = [1, 2, 3];
/** Platform in another thread, which runs while the event loop of the test is blocked. */
const PLATFORM = `
  const { parentPort, workerData } = require('node:worker_threads');
  const flag = new Int32Array(workerData);
  const tell = (state) => { Atomics.store(flag, 0, state); Atomics.notify(flag, 0); };
  const server = require('node:http').createServer((request, response) => request.resume().on('end', () => {
    tell(${ASKED});
    Atomics.wait(flag, 0, ${ASKED});
    response.writeHead(204).end(() => tell(${ANSWERED}));
  }));
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
`;

let worker: Worker | undefined;
let boundary: HttpBoundary | undefined;
afterEach(async () => {
  await boundary?.close();
  await worker?.terminate();
});

it('HTTP client accepts a response that arrived before its deadline while the process was suspended', {
  timeout: 60_000,
}, async () => {
  const shared = new SharedArrayBuffer(4);
  const flag = new Int32Array(shared);
  worker = new Worker(PLATFORM, { eval: true, workerData: shared });
  const [port] = (await once(worker, 'message')) as [number];
  let pass: (() => void) | undefined;
  const clock: Clock = {
    ...systemClock,
    after(delayMs, call) {
      if (delayMs !== DEADLINE_MS) return systemClock.after(delayMs, call);
      pass = call;
      return () => {};
    },
  };
  boundary = new HttpBoundary({
    redactor: new Redactor(),
    sockets: createDispatcher({ connections: 1 }),
    clock,
    userAgent: 'tagferry/test',
  });
  const url = new URL(`http://127.0.0.1:${port}/v1/assets/881/values`);
  const answered = boundary
    .send({ method: 'POST', url, body: '{}', statusSuffices: true, deadlineMs: DEADLINE_MS })
    .then(
      ({ status }) => status,
      (error: { code: string }) => error.code,
    );
  while (Atomics.load(flag, 0) !== ASKED) await new Promise((resolve) => setTimeout(resolve, 1));

  // Blocks the event loop until the response has arrived and the deadline has passed.
  Atomics.store(flag, 0, MAY_ANSWER);
  Atomics.notify(flag, 0);
  expect(Atomics.wait(flag, 0, MAY_ANSWER, 30_000)).not.toBe('timed-out');
  expect(Atomics.load(flag, 0)).toBe(ANSWERED);
  // The kernel may deliver the response with a delay.
  Atomics.wait(flag, 0, ANSWERED, 500);
  pass!();

  expect(await answered).toBe(204);
});
