import { systemClock } from '../../../src/base/clock.ts';
import { ingestBudgetBytes } from '../../../src/base/inbound/memory-budget.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { memoryLimitBytes } from '../../../src/base/memory-limit.ts';
import { HttpPush, PUSH_LISTENER } from '../../../src/sources/push/http-push.ts';
import { inboundServer, portOf } from '../../unit/doubles/inbound-server.ts';
import { makeIntakeBench } from '../../unit/sources/sink-double.ts';

/** Ingest listener in a separate process with a memory limit. Prints its port. */
const bench = makeIntakeBench();
bench.sink.offer = (supply) => queueMicrotask(() => supply.pull()?.stored());
const server = inboundServer(PUSH_LISTENER);
const push = new HttpPush({
  server,
  rules: { token: undefined },
  intake: bench.intake,
  clock: systemClock,
  log: silentLogger(),
  bytesUnderWay: ingestBudgetBytes(memoryLimitBytes()),
});
await server.start();
push.start();
process.stdout.write(`${portOf(server)}\n`);
