import type { Command } from 'commander';
import { counted, timeText } from '../base/amounts.ts';
import { UsageError } from '../base/errors.ts';
import { jsonText, plain } from '../base/foreign-text.ts';
import { table } from '../base/table.ts';
import { type EventSheet, listEvents, replayEvent, showEvent } from '../control/event-routes.ts';
import { readStoppedInbox, replayInStoppedInbox } from '../control/stopped-inbox.ts';
import type { CatchUpReport } from '../webhook/catch-up.ts';
import type { EventLine } from '../webhook/inbox-event.ts';
import { askDaemon, daemonPlace, orStopped } from './control-client.ts';

interface ListFlags {
  limit: string;
  type?: string;
  state?: string;
  json?: boolean;
}

/** Adds `tagferry events`: the inbox of webhook events. Looking and `replay` work on a stopped daemon's inbox too. */
export function define(program: Command): void {
  const events = program
    .command('events')
    .description('the inbox of webhook events; run reactions again; fetch what was missed');
  const place = () => daemonPlace(program.opts<{ config?: string }>().config, process.env);

  events
    .command('ls')
    .description('events, newest first')
    .option('--limit <n>', 'how many', '50')
    .option('--type <event type>', 'only of this type')
    .option('--state <received|running|done|failed|dead>', 'only events in this state')
    .option('--json', 'print them as JSON')
    .action(async (flags: ListFlags) => {
      const { type, state, json } = flags;
      const params = { limit: numberOf('--limit', flags.limit), type, state };
      const at = place();
      const found = await orStopped(
        () => askDaemon<{ events: EventLine[] }>(at, 'events/ls', params),
        () => readStoppedInbox(at.stateDir, (inbox) => listEvents(inbox, params)),
      );
      print(json ? jsonText(found.events) : listText(found.events));
    });

  events
    .command('show')
    .description('one event with its payload and what its reactions did')
    .argument('<id>', 'its number in `events ls`')
    .option('--json', 'print it as JSON')
    .action(async (id: string, flags: { json?: boolean }) => {
      const params = { id: numberOf('<id>', id) };
      const at = place();
      const sheet = await orStopped(
        () => askDaemon<EventSheet>(at, 'events/show', params),
        () => readStoppedInbox(at.stateDir, (inbox) => showEvent(inbox, params)),
      );
      print(flags.json ? jsonText(sheet) : sheetText(sheet));
    });

  events
    .command('replay')
    .description("run an event's reactions again, however old it is")
    .argument('<id>', 'its number in `events ls`')
    .option('--json', 'print the outcome as JSON')
    .action(async (id: string, flags: { json?: boolean }) => {
      const params = { id: numberOf('<id>', id) };
      const at = place();
      let when = 'Its reactions run now';
      const outcome = await orStopped(
        () => askDaemon<{ id: number }>(at, 'events/replay', params),
        () => {
          when = 'The daemon does not run: its reactions run when it starts';
          return replayInStoppedInbox(at.stateDir, (replay) => replayEvent(replay, params));
        },
      );
      print(flags.json ? jsonText(outcome) : `Event ${id}: ${when}. See \`tagferry events show ${id}\`.`);
    });

  events
    .command('catch-up')
    .description('read the deliveries list of the platform now, and take in what never arrived')
    .option('--json', 'print the outcome as JSON')
    .action(async (flags: { json?: boolean }) => {
      const report = await askDaemon<CatchUpReport>(place(), 'events/catch-up');
      const { listed, taken, asked, rejected } = report;
      const resends = [
        ...(asked > 0 ? [`${counted(asked, 'resend')} requested`] : []),
        ...(rejected > 0 ? [`${counted(rejected, 'resend')} rejected by the platform (see tagferry logs)`] : []),
      ];
      const found = `${counted(listed, 'delivery').replace('deliverys', 'deliveries')} listed`;
      print(flags.json ? jsonText(report) : `${[found, `${taken} new`, ...resends].join(', ')}.`);
      if (rejected > 0) process.exitCode = 1;
    });
}

function listText(events: readonly EventLine[]): string {
  if (events.length === 0) return 'No events.';
  return table([
    ['id', 'received (UTC)', 'occurred (UTC)', 'state', 'tries', 'event type'],
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
      `${event.id}  ${plain(event.event_type) || '-'}${event.unrecognised ? ' (unrecognised: nothing runs)' : ''}`,
    ],
    ['occurred', timeText(event.occurred_at)],
    ['received', timeText(event.received_at)],
    ['state', `${event.state}, begun ${counted(event.attempts, 'time')}`],
    ...(event.damaged ? [['damaged', 'what is on disk does not fit its checksum']] : []),
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
      ? 'No reaction has run.'
      : table([['at (UTC)', 'reaction', 'action', 'outcome', 'took', ''], ...journal]);
  return [head, '', did, '', jsonText(event.payload)].join('\n');
}

function numberOf(name: string, text: string): number {
  if (!/^\d{1,15}$/.test(text) || Number(text) < 1) throw new UsageError(`${name} ${text} is no whole number above 0`);
  return Number(text);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
