import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { endOrphans } from '../../../src/base/programs/family.ts';
import { createPerformer } from '../../../src/reactions/perform.ts';
import { ReactionRunner } from '../../../src/reactions/runner.ts';
import { openJournal } from './inbox-journal.ts';

/** A daemon that does nothing but react: opens the inbox named by its first argument, runs the command named by the rest. */
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
  }),
  clock: systemClock,
  logger: silentLogger(),
  now: () => ({ ms: systemClock.wallMs(), clock: 'platform' }),
});
runner.start();
process.on('SIGTERM', () => void runner.stop(20_000).then(() => process.exit(0)));
// Nothing else keeps this process alive while the runner rests.
setInterval(() => {}, 60_000);
