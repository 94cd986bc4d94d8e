import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Committer } from '../../../src/buffer/client/committer.ts';
import type { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { Gate } from '../../../src/sources/intake/gate.ts';
import { Stamps } from '../../../src/sources/intake/stamps.ts';
import { SourceStatus } from '../../../src/sources/status.ts';

/** Stores values like one pushed request. Resolves when they are on disk; rejects if they were not stored. */
export function commitColumns(committer: Committer, columns: ValueColumns): Promise<void> {
  const [stamps, clock, log] = [new Stamps(), systemClock, silentLogger()];
  const status = new SourceStatus({ name: 'http', kind: 'push', points: [], isPolled: false, clock, log });
  const gate = new Gate({ status, timeFrom: 'source', committer, stamps, clock, log, repeats: true });
  return gate.writeColumns(columns);
}
