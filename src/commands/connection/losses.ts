import { counted } from '../../base/amounts.ts';
import { codeOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { DecommissionStep } from '../../control/decommission-routes.ts';
import { readStoppedInbox } from '../../control/stopped-inbox.ts';
import type { BufferConnection } from './buffer-connection.ts';

export type Outcome = Extract<DecommissionStep, { decommissioned: boolean }>;

/** Reports the outcome and sets the exit status. */
export function reportOutcome(outcome: Outcome, stateDir: string, say: (text: string) => void): void {
  const { decommissioned, waiting, quarantined, webhook, webhook_problem: problem } = outcome;
  const left = [...(waiting > 0 ? [counted(waiting, 'value')] : []), ...inQuarantine(quarantined)].join(', ');
  if (!decommissioned) {
    process.exitCode = 1;
    process.stderr.write(
      `tagferry: ${left} not delivered. Nothing was deleted, and the agent ingests values again.\n` +
        'See `tagferry status`, `tagferry buffer ls` and `tagferry buffer quarantine`. Use a longer --timeout, save the values with\n' +
        '`tagferry buffer export`, or discard them with --lose-values.\n',
    );
    return;
  }
  if (webhook !== undefined) say(`Deleted webhook ${webhook}.`);
  say('This gateway is decommissioned: `tagferry run` exits with status 78 until you run `tagferry setup`.');
  if (left !== '') say(`Not delivered and still in ${stateDir}: ${left}.`);
  if (problem !== undefined) {
    process.exitCode = 1;
    process.stderr.write(`tagferry: the webhook still exists on the platform: ${plain(problem)}\n`);
  }
}

export interface Losses {
  values: number;
  held: number;
  quarantined: number;
}

const MAX_EVENTS_COUNTED = 1_000;

/**
 * Returns the number of events in a stopped agent's inbox whose reactions have not run, counting at most 1,000 per
 * event state.
 */
export async function openEvents(stateDir: string): Promise<number> {
  try {
    return await readStoppedInbox(stateDir, async (inbox) => {
      let open = 0;
      for (const state of ['received', 'running', 'failed'] as const) {
        open += (await inbox.list({ limit: MAX_EVENTS_COUNTED, state })).length;
      }
      return open;
    });
  } catch (error) {
    if (codeOf(error) === 'inbox.absent') return 0;
    throw error;
  }
}

/** Counts the undelivered values in the buffer. */
export async function lossesOf(connection: BufferConnection): Promise<Losses> {
  const { series } = await connection.ask<{ series: { values: number; quarantined: number; held: boolean }[] }>(
    'buffer/ls',
  );
  const sum = (of: (row: (typeof series)[number]) => number) => series.reduce((all, row) => all + of(row), 0);
  return {
    values: sum((row) => row.values),
    held: sum((row) => (row.held ? row.values : 0)),
    quarantined: sum((row) => row.quarantined),
  };
}

/** Returns a sentence about the values and events that would currently be lost. */
export function lossText({ values, held, quarantined }: Losses, events: number): string {
  const parts = [
    ...(values > 0 ? [`${counted(values, 'value')} waiting${held > 0 ? ` (${held} held)` : ''}`] : []),
    ...inQuarantine(quarantined),
    ...(events > 0 ? [`${counted(events, 'event')} with pending reactions`] : []),
  ];
  return parts.length === 0 ? 'No undelivered values.' : `Lost unless delivered in time: ${parts.join(', ')}.`;
}

function inQuarantine(quarantined: number): string[] {
  return quarantined > 0 ? [`${counted(quarantined, 'value')} in quarantine`] : [];
}
