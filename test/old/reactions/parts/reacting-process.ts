import { systemClock } from '../../../../src/base/clock.ts';
import { silentLogger } from '../../../../src/base/logger.ts';
import { endOrphans } from '../../../../src/base/programs/family.ts';
import { createPerformer } from '../../../../src/reactions/actions.ts';
import { ReactionRunner } from '../../../../src/reactions/engine/runner.ts';
import { openJournal } from '../../../unit/reactions/parts/inbox-journal.ts';

/** Runs reactions for the inbox in the first argument with the command in the others. */
const [file, ...command] = process.argv.slice(2) as [string, string, ...string[]];
const { journal } = openJournal(file, systemClock);
await endOrphans('crash-test');
const runner = new ReactionRunner({
  journal,
  reactions: [
    {
      name: 'r',
      on: '*',
      conditions: [],
      cooldownMs: 3_600_000,
      maxAgeMs: 0,
      actions: [
        { kind: 'run', command: ['/bin/sh', '-c', 'echo first >> "$0"', `${file}.first`], timeoutMs: 60_000 },
        { kind: 'run', command: command as [string, ...string[]], timeoutMs: 60_000 },
      ],
    },
  ],
  perform: createPerformer({
    clock: systemClock,
    logger: silentLogger(),
    instance: 'crash-test',
    publish: async () => {},
    write: async () => ({ outcome: 'failed', detail: '' }),
  }),
  clock: systemClock,
  logger: silentLogger(),
  now: () => ({ ms: systemClock.wallMs(), clock: 'platform' }),
});
runner.start();
process.on('SIGTERM', () => void runner.stop(20_000).then(() => process.exit(0)));
setInterval(() => {}, 60_000);
