import { systemClock } from '../../../src/base/clock.ts';
import { openDatabase } from '../../../src/base/database.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { WebhookListener } from '../../../src/webhook/listener.ts';
import { runnable } from './inbox-events.ts';

/** Inbox and listener as a process of its own, to be killed. Arguments: database, secret. Prints its port. */
const [path, secret] = process.argv.slice(2) as [string, string];
const inbox = Inbox.open(openDatabase(path), systemClock, 'boot');
const listener = new WebhookListener(
  { listen: { host: '127.0.0.1', port: 0 }, path: '/webhook', acceptSha1: false },
  {
    insertMany: async (events) => inbox.insertMany(events),
    secrets: () => [secret],
    clock: systemClock,
    log: silentLogger(),
    // As a runner would: events are under way when the process dies.
    inserted: () => {
      for (const event of runnable(inbox, 3)) inbox.markRunning(event.id);
    },
  },
);
await listener.start();
process.stdout.write(`${(listener.address() as { port: number }).port}\n`);
