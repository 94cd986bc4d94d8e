/**
 * Control routes of `tagferry write`. `write/preview` checks a write and reads the current value. `write/confirm` performs
 * the write that root has proved (write-proof.ts), once per proof. The user `tagferry` can also open the socket, but
 * cannot create a proof.
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { MANUAL_WRITE } from '../contract/value-events.ts';
import type { WriteResult, Writer } from '../sources/writes/writer.ts';
import type { Remote } from '../store/store-api.ts';
import { identityOf } from '../webhook/identity.ts';
import type { Inbox } from '../webhook/inbox.ts';
import type { ArrivedEvent } from '../webhook/received-event.ts';
import type { ControlRoutes } from './control-server.ts';
import { type Params, textIn } from './params.ts';
import { type ProvenWrite, proofOf } from './write-proof.ts';

/** Result of `write/preview`. */
export interface PreviewedWrite {
  /** Value after rounding to the device's data type. */
  value: number;
  /** Current value; null if the device cannot be read. */
  previous: number | null;
}

type RequestedWrite = Omit<ProvenWrite, 'user'>;

export type ConfirmedWrite = WriteResult & { event: number };

export interface WriteRouteParts {
  writer: Pick<Writer, 'plan' | 'current' | 'write'>;
  inbox: Pick<Remote<Inbox>, 'insertRunning' | 'record' | 'finish'>;
  clock: Clock;
}

export function writeRoutes({ writer, inbox, clock }: WriteRouteParts): ControlRoutes {
  /** End of validity of the proofs that were used. */
  const used = new Map<string, number>();
  return {
    'write/preview': async (params, { signal }): Promise<PreviewedWrite> => {
      const plan = writer.plan(requestIn(params));
      return { value: plan.value, previous: (await writer.current(plan.target, signal)) ?? null };
    },
    'write/confirm': async (params, { signal }): Promise<ConfirmedWrite> => {
      const id = textIn(params, 'id') ?? '';
      const proof = await proofOf(id);
      for (const [one, untilMs] of used) if (untilMs < clock.monotonicMs()) used.delete(one);
      if (proof === undefined || used.has(id)) {
        throw new UsageError('the write is not confirmed by root', 'Run `sudo tagferry write`.');
      }
      const { untilMs, user, ...what } = proof;
      used.set(id, untilMs);
      const by = `operator ${user}`;
      const journal = { reaction: '', action: `write ${what.tag} ${what.key} ${what.value}` };
      const begun = { ...journal, outcome: 'begun', detail: `by ${by}`, durationMs: 0, atMs: clock.wallMs() };
      const event = await inbox.insertRunning(eventOf(what, by), begun);
      const beganMs = clock.monotonicMs();
      const reasonAgainst = () => (clock.monotonicMs() > untilMs ? 'the confirmation is too old' : undefined);
      const result = await writer.write({ ...what, by, order: [event, 0, 0], reasonAgainst, signal });
      const durationMs = Math.round(clock.monotonicMs() - beganMs);
      const { outcome, detail } = result;
      const ended = { ...journal, outcome, detail: `by ${by}: ${detail}`, durationMs, atMs: clock.wallMs() };
      await inbox.record(event, undefined, ended);
      await inbox.finish(event, outcome === 'written' ? 'done' : 'dead');
      return { ...result, event };
    },
  };

  function eventOf({ tag, key, group, value }: RequestedWrite, by: string): ArrivedEvent {
    const atMs = clock.wallMs();
    const occurred = new Date(atMs).toISOString();
    const content = { tag, by, data: { key, ...(group === undefined ? {} : { group }), value } };
    const payload = Buffer.from(JSON.stringify({ event_type: MANUAL_WRITE, occurred_at: occurred, content }));
    const identity = identityOf(Buffer.from(`${randomUUID()}/${payload}`));
    return {
      eventType: MANUAL_WRITE,
      occurredAtMs: atMs,
      receivedAtMs: atMs,
      unrecognised: false,
      identity,
      payload,
    };
  }
}

function requestIn(params: Params): RequestedWrite {
  const [tag, key] = [textIn(params, 'tag'), textIn(params, 'key')];
  if (tag === undefined || key === undefined) throw new UsageError('tag and key are required');
  const { value } = params;
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new UsageError('value must be a number');
  return { tag, key, group: textIn(params, 'group'), value };
}
