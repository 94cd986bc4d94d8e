import { systemClock } from '../../../../src/base/clock.ts';
import { openDatabase } from '../../../../src/base/database.ts';
import { silentLogger } from '../../../../src/base/logger.ts';
import { Arrivals } from '../../../../src/webhook/arrivals.ts';
import { Inbox } from '../../../../src/webhook/inbox.ts';
import { WebhookListener } from '../../../../src/webhook/listener.ts';
import { runnable } from '../../../unit/webhook/parts/inbox-events.ts';

/** Runs an inbox with a listener in a process that tests kill. Arguments: database, secret. Prints the port. */
const [path, secret] = process.argv.slice(2) as [string, string];
const inbox = Inbox.open(openDatabase(path), systemClock, 'boot');
const listener = new WebhookListener(
  { listen: { host: '127.0.0.1', port: 0 }, path: '/webhook', acceptSha1: false },
  {
    arrivals: new Arrivals({
      insertMany: async (events) => inbox.insertMany(events),
      log: silentLogger(),
      // Like the runner: events are in progress when the process is killed.
      inserted: () => {
        for (const event of runnable(inbox, 3)) inbox.markRunning(event.id);
      },
    }),
    secrets: () => [secret],
    clock: systemClock,
    log: silentLogger(),
  },
);
await listener.start();
process.stdout.write(`${(listener.address() as { port: number }).port}\n`);
