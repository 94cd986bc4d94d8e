/**
 * Detects another agent that uses this gateway's identity, for example after its disk was copied. Components report
 * three kinds of conflict:
 * - `broker`   another client connected to an MQTT broker with this gateway's client ID; `subject` is the
 *   source.
 * - `token`    the platform rejected an unexpired token and accepted the next one: another client revoked it.
 * - `webhook`  the platform signs deliveries with an unknown secret: another client changed it.
 *
 * A conflict lasts until `end` is called or no further report has arrived for some time.
 */
import type { Clock } from './clock.ts';
import type { Logger } from './logger.ts';
import { Repeats } from './repeats.ts';

export type ConflictKind = 'broker' | 'token' | 'webhook';

export interface IdentityConflict {
  kind: ConflictKind;
  /** Name of the source, for the kind `broker`. */
  subject: string | undefined;
  /** Wall-clock time of the first report. */
  sinceMs: number;
  /** Number of reports. */
  count: number;
}

interface Present extends IdentityConflict {
  cancelEnd: () => void;
}

/**
 * Time after which a conflict without further reports ends, in milliseconds. The platform retries deliveries for
 * hours.
 */
const COUNTS_MS: Readonly<Record<ConflictKind, number>> = {
  broker: 2 * 60_000,
  token: 15 * 60_000,
  webhook: 24 * 3_600_000,
};

const WORDS: Readonly<Record<ConflictKind, readonly [what: string, hint: string]>> = {
  broker: [
    "another client is using this gateway's client ID on the broker",
    'Run `tagferry identity new` on the copied machine, or change the client_id of its source.',
  ],
  token: [
    'a token was revoked before it expired, but not by this agent',
    'If it was not revoked manually, another agent has a copy of the state folder: run `tagferry identity new` on that machine.',
  ],
  webhook: [
    'the platform is signing deliveries with a different secret',
    'Another agent with the same WEBHOOK_URL, or a user, changed the secret. Set a separate WEBHOOK_URL for each agent, then run `tagferry webhook rotate-secret` on this one.',
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
    this.#log.info(fields, 'identity conflict resolved');
  }

  list(): IdentityConflict[] {
    return [...this.#present.values()].map(({ cancelEnd: _, ...conflict }) => conflict);
  }
}

/** Describes the conflict and the corrective action. `source` is the source of a `broker` conflict. */
export function conflictWords(kind: ConflictKind, source?: string | null): { what: string; hint: string } {
  const [what, hint] = WORDS[kind];
  return { what: source ? `${what} (source ${source})` : what, hint };
}

/** Returns a sentence for each conflict, for the notes in `/healthz`. */
export function conflictNotes(conflicts: readonly IdentityConflict[]): string[] {
  return conflicts.map(({ kind, subject }) => {
    const { what, hint } = conflictWords(kind, subject);
    return `${what}: ${hint}`;
  });
}

function keyOf(kind: ConflictKind, subject: string | undefined): string {
  return `${kind}:${subject ?? ''}`;
}
