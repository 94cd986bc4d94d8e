/**
 * Signs that another agent runs with the identity of this gateway, for example because the disk of a machine was copied. Whoever sees a
 * sign reports it here, under one of three kinds:
 * - `broker`   another client has connected to an MQTT broker with the client id of this gateway; `subject` is the source.
 * - `token`    the platform rejected a token before its end and accepted the next one: somebody has revoked it.
 * - `webhook`  the platform signs deliveries with a secret that is not known here: somebody has changed it.
 *
 * States of a sign: absent, present from its report until `end`, or until it was not reported for some time.
 */
import type { Clock } from './clock.ts';
import type { Logger } from './logger.ts';
import { Repeats } from './repeats.ts';

export type ConflictKind = 'broker' | 'token' | 'webhook';

export interface IdentityConflict {
  kind: ConflictKind;
  /** The source, of kind `broker`. */
  subject: string | undefined;
  /** Wall clock. */
  sinceMs: number;
  /** How often it was seen since then. */
  count: number;
}

interface Present extends IdentityConflict {
  cancelEnd: () => void;
}

/** How long a sign counts after its last report, in milliseconds. The platform repeats deliveries after hours. */
const COUNTS_MS: Readonly<Record<ConflictKind, number>> = {
  broker: 2 * 60_000,
  token: 15 * 60_000,
  webhook: 24 * 3_600_000,
};

const WORDS: Readonly<Record<ConflictKind, readonly [what: string, hint: string]>> = {
  broker: [
    'another client connects to the broker with the client id of this gateway',
    'Run `tagferry identity new` on the machine that was copied, or change client_id of the source there.',
  ],
  token: [
    'a token was revoked before its end, but not by this agent',
    'If no person has revoked it, another agent has a copy of the state folder: run `tagferry identity new` there.',
  ],
  webhook: [
    'the platform signs deliveries with another secret than the one known here',
    'Another agent with the same WEBHOOK_URL, or a person, has changed it. Give each agent its own WEBHOOK_URL, then run `tagferry webhook rotate-secret` here.',
  ],
};

export const CONFLICT_KINDS = Object.keys(WORDS) as ConflictKind[];

export class IdentityConflicts {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #present = new Map<string, Present>();
  readonly #repeats = new Repeats();

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#log = log;
  }

  report(kind: ConflictKind, subject?: string): void {
    const key = keyOf(kind, subject);
    const before = this.#present.get(key);
    before?.cancelEnd();
    const cancelEnd = this.#clock.after(COUNTS_MS[kind], () => this.end(kind, subject));
    const { sinceMs, count } = before ?? { sinceMs: this.#clock.wallMs(), count: 0 };
    this.#present.set(key, { kind, subject, sinceMs, count: count + 1, cancelEnd });
    const logged = this.#repeats.note(key, this.#clock.monotonicMs());
    if (logged === undefined) return;
    const [what, hint] = WORDS[kind];
    const fields = { event: 'identity.conflict', kind, ...(subject ? { source: subject } : {}), count: logged, hint };
    this.#log.warn(fields, what);
  }

  end(kind: ConflictKind, subject?: string): void {
    const key = keyOf(kind, subject);
    const before = this.#present.get(key);
    if (!before) return;
    before.cancelEnd();
    this.#present.delete(key);
    this.#repeats.end(key);
    const fields = { event: 'identity.conflict_over', kind, ...(subject ? { source: subject } : {}) };
    this.#log.info(fields, 'a conflict of identities is over');
  }

  list(): IdentityConflict[] {
    return [...this.#present.values()].map(({ cancelEnd: _, ...conflict }) => conflict);
  }
}

/** For people: what is wrong, and what to do. `source` is that of a conflict of kind `broker`. */
export function conflictWords(kind: ConflictKind, source?: string | null): { what: string; hint: string } {
  const [what, hint] = WORDS[kind];
  return { what: source ? `${what} (source ${source})` : what, hint };
}

/** A sentence for each, for the notes of `/healthz`. */
export function conflictNotes(conflicts: readonly IdentityConflict[]): string[] {
  return conflicts.map(({ kind, subject }) => {
    const { what, hint } = conflictWords(kind, subject);
    return `${what}: ${hint}`;
  });
}

function keyOf(kind: ConflictKind, subject: string | undefined): string {
  return `${kind}:${subject ?? ''}`;
}
