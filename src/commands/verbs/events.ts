import type { Command } from 'commander';
import { counted, timeText } from '../../base/amounts.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import { type EventSheet, listEvents, replayEvent, showEvent } from '../../control/event-routes.ts';
import { readStoppedInbox, replayInStoppedInbox } from '../../control/stopped-inbox.ts';
import type { CatchUpReport } from '../../webhook/catch-up.ts';
import type { EventLine } from '../../webhook/inbox-event.ts';
import { agentOf, askAgent, orStopped } from '../connection/control-client.ts';
import { positiveInteger } from '../terminal/input.ts';
import { print } from '../terminal/output.ts';

interface ListFlags {
  limit: string;
  type?: string;
  state?: string;
  json?: boolean;
}

/** Adds `tagferry events`. `ls`, `show` and `replay` also work with a stopped agent's inbox. */
export function define(program: Command): void {
  const events = program.command('events').description('list webhook events, replay reactions, fetch missed events');
  const place = () => agentOf(program);

  events
    .command('ls')
    .description('list events, newest first')
    .option('--limit <n>', 'maximum number of events', '50')
    .option('--type <event type>', 'event type')
    .option('--state <received|running|done|failed|dead>', 'event status')
    .option('--json', 'print the events as JSON')
    .action(async (flags: ListFlags) => {
      const { type, state, json } = flags;
      const params = { limit: positiveInteger('--limit', flags.limit), type, state };
      const at = place();
      const found = await orStopped(
        () => askAgent<{ events: EventLine[] }>(at, 'events/ls', params),
        () => readStoppedInbox(at.stateDir, (inbox) => listEvents(inbox, params)),
      );
      print(json ? jsonText(found.events) : listText(found.events));
    });

  events
    .command('show')
    .description('show an event with its payload and the results of its reactions')
    .argument('<id>', 'id from `events ls`')
    .option('--json', 'print the event as JSON')
    .action(async (id: string, flags: { json?: boolean }) => {
      const params = { id: positiveInteger('<id>', id) };
      const at = place();
      const sheet = await orStopped(
        () => askAgent<EventSheet>(at, 'events/show', params),
        () => readStoppedInbox(at.stateDir, (inbox) => showEvent(inbox, params)),
      );
      print(flags.json ? jsonText(sheet) : sheetText(sheet));
    });

  events
    .command('replay')
    .description('run the reactions of an event again, regardless of its age')
    .argument('<id>', 'id from `events ls`')
    .option('--json', 'print the result as JSON')
    .action(async (id: string, flags: { json?: boolean }) => {
      const params = { id: positiveInteger('<id>', id) };
      const at = place();
      let when = 'reactions are running';
      const outcome = await orStopped(
        () => askAgent<{ id: number }>(at, 'events/replay', params),
        () => {
          when = 'no agent is running; reactions will run when it starts';
          return replayInStoppedInbox(at.stateDir, (replay) => replayEvent(replay, params));
        },
      );
      print(flags.json ? jsonText(outcome) : `Event ${id}: ${when}. See \`tagferry events show ${id}\`.`);
    });

  events
    .command('catch-up')
    .description("read the platform's deliveries list and ingest missed events")
    .option('--json', 'print the result as JSON')
    .action(async (flags: { json?: boolean }) => {
      const report = await askAgent<CatchUpReport>(place(), 'events/catch-up');
      const { listed, taken, asked, rejected } = report;
      const resends = [
        ...(asked > 0 ? [`${counted(asked, 'resend')} requested`] : []),
        ...(rejected > 0 ? [`${counted(rejected, 'resend')} rejected by the platform (see tagferry logs)`] : []),
      ];
      const found = `${counted(listed, 'delivery')} listed`;
      print(flags.json ? jsonText(report) : `${[found, `${taken} new`, ...resends].join(', ')}.`);
      if (rejected > 0) process.exitCode = 1;
    });
}

function listText(events: readonly EventLine[]): string {
  if (events.length === 0) return 'No events.';
  return table([
    ['id', 'received (UTC)', 'occurred (UTC)', 'state', 'attempts', 'event type'],
    ...events.map((event) => [
      String(event.id),
      timeText(event.received_at),
      timeText(event.occurred_at),
      event.unrecognised ? 'unrecognised' : event.state,
      String(event.attempts),
      plain(event.event_type) || '-',
    ]),
  ]);
}

function sheetText(event: EventSheet): string {
  const head = table([
    [
      'event',
      `${event.id}  ${plain(event.event_type) || '-'}${event.unrecognised ? ' (unrecognised, no reactions)' : ''}`,
    ],
    ['occurred', timeText(event.occurred_at)],
    ['received', timeText(event.received_at)],
    ['state', `${event.state}, ${counted(event.attempts, 'attempt')}`],
    ...(event.damaged ? [['damaged', 'stored event does not match its checksum']] : []),
  ]);
  const journal = event.journal.map((entry) => [
    timeText(entry.at),
    plain(entry.reaction) || '-',
    plain(entry.action),
    plain(entry.outcome),
    `${entry.duration_ms} ms`,
    plain(entry.detail ?? ''),
  ]);
  const did =
    journal.length === 0
      ? 'No reactions have run.'
      : table([['at (UTC)', 'reaction', 'action', 'result', 'duration', ''], ...journal]);
  return [head, '', did, '', jsonText(event.payload)].join('\n');
}
