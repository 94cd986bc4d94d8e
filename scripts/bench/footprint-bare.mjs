// Baseline for the footprint: footprint-bare.mjs NOTES-OF-MAIN NOTES-OF-THREAD LEFT-OUT. Each thread loads the modules that the
// agent's thread loads, in the same order and way, and then idles. Modules below the URL LEFT-OUT are skipped, if it is not empty.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

const require = createRequire(import.meta.url);

async function load({ notes, leftOut }) {
  for (const line of new Set(readFileSync(notes, 'utf8').trim().split('\n'))) {
    const [how, url] = line.split(' ');
    if (leftOut !== '' && url.startsWith(leftOut)) continue;
    if (how === 'import') await import(url);
    else require(url.startsWith('file:') ? new URL(url).pathname : url);
  }
}

if (isMainThread) {
  const [ofMain, ofThread, leftOut] = process.argv.slice(2);
  const worker = new Worker(new URL(import.meta.url), {
    workerData: { notes: ofThread, leftOut },
    // As in the agent.
    resourceLimits: { maxYoungGenerationSizeMb: 4 },
    execArgv: [],
  });
  const up = new Promise((resolve) => worker.once('message', resolve));
  await load({ notes: ofMain, leftOut });
  await up;
  process.stdout.write('{"event":"agent.ready"}\n');
} else {
  await load(workerData);
  // The native part of the driver is loaded with its first database.
  const Database = require(require.resolve('better-sqlite3'));
  new Database(':memory:').close();
  parentPort.on('message', () => {});
  parentPort.postMessage('up');
}
