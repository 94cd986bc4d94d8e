import { counted } from '../../base/amounts.ts';
import { codeOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { DecommissionStep } from '../../control/decommission-routes.ts';
import { readStoppedInbox } from '../../control/stopped-inbox.ts';
import type { BufferConnection } from '../buffer-connection.ts';

export type Outcome = Extract<DecommissionStep, { decommissioned: boolean }>;

/** Says how it went and sets the exit status. */
export function tellOutcome(outcome: Outcome, stateDir: string, tell: (text: string) => void): void {
  const { decommissioned, waiting, quarantined, webhook, webhook_problem: problem } = outcome;
  const left = [...(waiting > 0 ? [counted(waiting, 'value')] : []), ...inQuarantine(quarantined)].join(', ');
  if (!decommissioned) {
    process.exitCode = 1;
    process.stderr.write(
      `tagferry: values are left (${left}): nothing was deleted, values are taken in again.\n` +
        'See `tagferry status`, `tagferry buffer ls`, `tagferry buffer quarantine`; give it more --timeout, save them with\n' +
        '`tagferry buffer export`, or give them up with --lose-values.\n',
    );
    return;
  }
  if (webhook !== undefined) tell(`Webhook ${webhook} is deleted.`);
  tell('This gateway is decommissioned: `tagferry run` ends with 78 until `tagferry setup`.');
  if (left !== '') tell(`Not delivered, and still in ${stateDir}: ${left}.`);
  if (problem !== undefined) {
    process.exitCode = 1;
    process.stderr.write(`tagferry: the webhook stays on the platform: ${plain(problem)}\n`);
  }
}

export interface Losses {
  values: number;
  held: number;
  quarantined: number;
}

const MAX_EVENTS_COUNTED = 1_000;

/** Events of a stopped daemon's inbox whose reaction did not run yet: a thousand of each state at most. */
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

/** What the buffer holds, whoever has it. */
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

/** What would be lost now, in one sentence. */
export function lossText({ values, held, quarantined }: Losses, events: number): string {
  const parts = [
    ...(values > 0 ? [`${counted(values, 'value')} waiting${held > 0 ? ` (${held} held)` : ''}`] : []),
    ...inQuarantine(quarantined),
    ...(events > 0 ? [`${counted(events, 'event')} without its reaction`] : []),
  ];
  return parts.length === 0 ? 'Nothing would be lost.' : `What does not leave in time is lost: ${parts.join(', ')}.`;
}

function inQuarantine(quarantined: number): string[] {
  return quarantined > 0 ? [`${counted(quarantined, 'value')} in quarantine`] : [];
}
