import type { Clock } from '../../base/clock.ts';
import { IDENTITY_TOKEN_PATH, SIGN_IN_PATH } from '../../contract/tokens.ts';
import type { Faults, NewFault } from '../faults.ts';
import type { RequestEntry } from '../http/request-entry.ts';
import type { RequestLog } from '../http/request-log.ts';
import type { TokenStore } from '../tokens/token-store.ts';

export interface DrillParts {
  log: RequestLog;
  faults: Faults;
  tokens: TokenStore;
  clock: Clock;
  /** The step that begins. */
  report(what: string): void;
}

/** How long each step waits for the client to meet it. */
const PATIENCE_MS = 30_000;
/** A person is slower, and may have to look for the client's sign-in first. */
const PERSON_PATIENCE_MS = 10 * 60_000;
/** Until a new minute starts, and the client has come again after it. */
const MINUTE_PATIENCE_MS = 60_000 + PATIENCE_MS;
/** Of a token of the drill, in seconds: short enough to see it replaced. */
const LIFE_S = 20;
const RETRY_AFTER_S = 2;

interface Step {
  what: string;
  /** Gives what takes it back once it was met, or was not. */
  act?(parts: DrillParts): (() => void) | undefined;
  isMet(entry: RequestEntry): boolean;
  /** How the client is served again. */
  isServed?(entry: RequestEntry): boolean;
  patienceMs?: number;
}

const isDone = ({ path, status }: RequestEntry) => path.startsWith('/v') && status >= 200 && status < 300;
const isSignIn = ({ path, status }: RequestEntry) => /oauth\/token$/.test(path) && status === 200;
const isRefused = ({ status }: RequestEntry) => status === 401;
const isExchange = ({ path, status }: RequestEntry) => path === IDENTITY_TOKEN_PATH && status === 200;
const met = (text: RegExp) => (entry: RequestEntry) => text.test(entry.fault ?? '');

/** A fault that one call meets; taken away again where none did. */
const once =
  (fault: NewFault) =>
  ({ faults }: DrillParts) => {
    const id = faults.add({ path: '/v*', times: 1, ...fault });
    return () => void faults.remove(id);
  };

/** A wrong password or a refused request does not use it up. */
function foreignState({ faults }: DrillParts): () => void {
  const id = faults.add({ method: 'POST', path: SIGN_IN_PATH, state: 'foreign' });
  return () => void faults.remove(id);
}

/**
 * What a client meets in the field within weeks, one after the other within minutes: dead tokens, short lives, a service that is busy, broken
 * connections, lost answers. Each step waits until the client has met it and then has been served again.
 */
const FIELD: readonly Step[] = [
  { what: 'a call is answered', isMet: isDone },
  {
    what: 'the service is not available, and says for how long',
    act: once({ status: 503, retryAfter: RETRY_AFTER_S }),
    isMet: met(/503/),
  },
  {
    what: 'there were too many requests, and it says how long to wait',
    act: once({ status: 429, retryAfter: RETRY_AFTER_S }),
    isMet: met(/429/),
  },
  {
    what: 'there were too many requests for this minute',
    act: once({ status: 429 }),
    isMet: met(/429/),
    patienceMs: MINUTE_PATIENCE_MS,
  },
  { what: 'the service fails, and says nothing more', act: once({ status: 500 }), isMet: met(/500/) },
  { what: 'a connection breaks', act: once({ drop: 'before' }), isMet: met(/broken/) },
  { what: 'an answer is lost', act: once({ method: 'POST', drop: 'after' }), isMet: met(/lost/) },
  { what: 'every access token is dead', act: ({ tokens }) => void tokens.expireAll(false), isMet: isRefused },
  { what: 'every token is dead', act: ({ tokens }) => void tokens.revokeAll(), isMet: isRefused },
  { what: 'tokens live for a short time', act: shortLives, isMet: isSignIn },
  { what: 'a token is replaced, and the old one revoked', isMet: ({ path }) => /oauth\/revoke$/.test(path) },
];

/** What a person's sign-in may meet: sign in by the client that is under exam, and again when it says that it did not work. */
const SIGN_IN: readonly Step[] = [
  {
    what: 'a person signs in, and the browser comes back with the state of somebody else: sign in again',
    act: foreignState,
    isMet: met(/state/),
    isServed: isExchange,
    patienceMs: PERSON_PATIENCE_MS,
  },
];

/** Which parts of the drill a client is taken through. */
export interface DrillScope {
  /** What it meets in the field. */
  field: boolean;
  /** Needs a person, or a test that acts as one. */
  signIn: boolean;
}

function shortLives({ tokens }: DrillParts): () => void {
  const usualS = tokens.accessTokenLifeS;
  tokens.configure({ accessTokenLifeS: Math.min(LIFE_S, usualS) });
  tokens.expireAll(false);
  return () => tokens.configure({ accessTokenLifeS: usualS });
}

/** Takes the client through all steps; gives those that it never met, in words. */
export async function runDrill(parts: DrillParts, scope: DrillScope, signal: AbortSignal): Promise<string[]> {
  const missed: string[] = [];
  for (const step of [...(scope.field ? FIELD : []), ...(scope.signIn ? SIGN_IN : [])]) {
    const { what, isMet, isServed = isDone, patienceMs = PATIENCE_MS } = step;
    const { id } = parts.log.list().at(-1) ?? { id: 0 };
    parts.report(what);
    const undo = step.act?.(parts);
    const seen = await next(parts, id, isMet, patienceMs, signal);
    undo?.();
    if (seen === undefined) missed.push(what);
    else if (!isServed(seen) && (await next(parts, seen.id, isServed, patienceMs, signal)) === undefined) {
      missed.push(`${what}, and it is served after that`);
    }
    if (signal.aborted) break;
  }
  return missed;
}

/** The next such request after that one; `undefined` where none comes in time. */
function next(
  { log, clock }: DrillParts,
  after: number,
  isWanted: (entry: RequestEntry) => boolean,
  patienceMs: number,
  signal: AbortSignal,
): Promise<RequestEntry | undefined> {
  const found = log.list().find((entry) => entry.id > after && isWanted(entry));
  if (found !== undefined) return Promise.resolve(found);
  return new Promise((resolve) => {
    const end = (entry: RequestEntry | undefined) => {
      stop();
      cancel();
      signal.removeEventListener('abort', giveUp);
      resolve(entry);
    };
    const giveUp = () => end(undefined);
    const stop = log.onRequest((entry) => {
      if (entry.id > after && isWanted(entry)) end(entry);
    });
    const cancel = clock.after(patienceMs, giveUp);
    signal.addEventListener('abort', giveUp, { once: true });
    if (signal.aborted) giveUp();
  });
}
