import { counted } from '../../base/amounts.ts';
import type { Clock } from '../../base/clock.ts';
import type { RequestLog } from '../http/request-log.ts';
import { CONTENT_RULES } from './content-rules.ts';
import type { Mark } from './mark.ts';
import { observed } from './observed.ts';
import { PACE_RULES } from './pace-rules.ts';
import type { ExamSurroundings, Rule, Watcher } from './rule.ts';
import { SESSION_RULES } from './session-rules.ts';
import { SIGN_IN_RULES } from './sign-in-rules.ts';

const RULES: readonly Rule[] = [...SESSION_RULES, ...SIGN_IN_RULES, ...PACE_RULES, ...CONTENT_RULES];

interface Sitting {
  rule: Rule;
  watcher: Watcher;
  held: number;
  broken: string[];
}

/** So many offences of one rule are remembered in words. */
const MAX_WORDS = 5;

/**
 * Watches what a client sends, and marks it by what the interface asks of clients. It only looks: what a client meets is set by faults,
 * or by the drill (`drill.ts`). Nothing is watched before `begin` and after `end`.
 */
export class ClientExam {
  readonly #log: RequestLog;
  readonly #clock: Clock;
  readonly #surroundings: ExamSurroundings;
  #sittings: Sitting[] = [];
  #stop: (() => void) | undefined;

  constructor(log: RequestLog, clock: Clock, surroundings: ExamSurroundings) {
    this.#log = log;
    this.#clock = clock;
    this.#surroundings = surroundings;
  }

  get isRunning(): boolean {
    return this.#stop !== undefined;
  }

  /** From here on; what was seen before is forgotten. */
  begin(): void {
    this.end();
    this.#sittings = RULES.map((rule) => {
      const sitting: Omit<Sitting, 'watcher'> = { rule, held: 0, broken: [] };
      const tally = {
        held: () => void sitting.held++,
        broken: (why: string) => {
          if (sitting.broken.length < MAX_WORDS && !sitting.broken.includes(why)) sitting.broken.push(why);
        },
      };
      return Object.assign(sitting, { watcher: rule.begin(tally, this.#surroundings) });
    });
    this.#stop = this.#log.onRequest((entry, exchange) => {
      const one = observed(entry, exchange);
      for (const { watcher } of this.#sittings) watcher.see(one);
    });
  }

  end(): void {
    this.#stop?.();
    this.#stop = undefined;
  }

  /** The marks so far; what is still open counts as it stands now. */
  marks(): Mark[] {
    const nowMs = this.#clock.monotonicMs();
    return this.#sittings.map(({ rule, watcher, held, broken }) => {
      const open = watcher.open?.(nowMs);
      const offences = open === undefined ? broken : [...broken, open];
      const state = offences.length > 0 ? 'broken' : held > 0 ? 'held' : 'unseen';
      const seen = offences.length > 0 ? offences.join('; ') : held > 0 ? counted(held, 'time') : '';
      return { id: rule.id, section: rule.section, requirement: rule.requirement, state, seen };
    });
  }
}
