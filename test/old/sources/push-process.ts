import { systemClock } from '../../../src/base/clock.ts';
import { ingestBudgetBytes } from '../../../src/base/inbound/memory-budget.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { memoryLimitBytes } from '../../../src/base/memory-limit.ts';
import { HttpPush } from '../../../src/sources/push/http-push.ts';
import { makeIntakeBench } from '../../unit/sources/sink-double.ts';

/** Ingest listener in a separate process with a memory limit. Prints its port. */
const bench = makeIntakeBench();
bench.sink.offer = (supply) => queueMicrotask(() => supply.pull()?.stored());
const push = new HttpPush({
  listen: { host: '127.0.0.1', port: 0 },
  rules: { token: undefined },
  intake: bench.intake,
  clock: systemClock,
  log: silentLogger(),
  limits: { bytesUnderWay: ingestBudgetBytes(memoryLimitBytes()) },
});
const at = await push.start();
process.stdout.write(`${'port' in at ? at.port : 0}\n`);
