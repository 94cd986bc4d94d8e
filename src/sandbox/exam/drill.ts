import type { Clock } from '../../base/clock.ts';
import type { Faults, NewFault } from '../faults.ts';
import type { RequestEntry } from '../http/request-entry.ts';
import type { RequestLog } from '../http/request-log.ts';
import type { TokenStore } from '../tokens/token-store.ts';

export interface DrillParts {
  log: RequestLog;
  faults: Faults;
  tokens: TokenStore;
  clock: Clock;
  report(sentence: string): void;
}

/** How long each step waits for the client to meet it. */
const PATIENCE_MS = 30_000;
/** Of a token of the drill, in seconds: short enough to see it replaced. */
const LIFE_S = 20;
const RETRY_AFTER_S = 2;

/** `act` gives what takes it back, where something has to be. */
type Step = [
  what: string,
  act: (parts: DrillParts) => (() => void) | undefined,
  isMet: (entry: RequestEntry) => boolean,
];

const isDone = ({ path, status }: RequestEntry) => path.startsWith('/v') && status >= 200 && status < 300;
const isSignIn = ({ path, status }: RequestEntry) => /oauth\/token$/.test(path) && status === 200;
const isRefused = ({ status }: RequestEntry) => status === 401;
const met = (text: RegExp) => (entry: RequestEntry) => text.test(entry.fault ?? '');
const nothing = () => undefined;

/** A fault that one call meets; taken away again where none did. */
const once =
  (fault: NewFault) =>
  ({ faults }: DrillParts) => {
    const id = faults.add({ path: '/v*', times: 1, ...fault });
    return () => void faults.remove(id);
  };

/**
 * What a client meets in the field within weeks, one after the other within minutes: dead tokens, short lives, a service that is busy, broken
 * connections, lost answers. Each step waits until the client has met it and then has been served again.
 */
const STEPS: readonly Step[] = [
  ['a call is answered', nothing, isDone],
  ['the service is not available, and says for how long', once({ status: 503, retryAfter: RETRY_AFTER_S }), met(/503/)],
  ['there were too many requests', once({ status: 429, retryAfter: RETRY_AFTER_S }), met(/429/)],
  ['the service fails, and says nothing more', once({ status: 500 }), met(/500/)],
  ['a connection breaks', once({ drop: 'before' }), met(/broken/)],
  ['an answer is lost', once({ method: 'POST', drop: 'after' }), met(/lost/)],
  ['every access token is dead', ({ tokens }) => void tokens.expireAll(false), isRefused],
  ['every token is dead', ({ tokens }) => void tokens.revokeAll(), isRefused],
  ['tokens live for a short time', shortLives, isSignIn],
  ['a token is replaced, and the old one revoked', nothing, ({ path }) => /oauth\/revoke$/.test(path)],
];

function shortLives({ tokens }: DrillParts): () => void {
  const usualS = tokens.accessTokenLifeS;
  tokens.configure({ accessTokenLifeS: Math.min(LIFE_S, usualS) });
  tokens.expireAll(false);
  return () => tokens.configure({ accessTokenLifeS: usualS });
}

/** Takes the client through all steps; gives those that it never met, in words. */
export async function runDrill(parts: DrillParts, signal: AbortSignal): Promise<string[]> {
  const missed: string[] = [];
  for (const [what, act, isMet] of STEPS) {
    const { id } = parts.log.list().at(-1) ?? { id: 0 };
    parts.report(`exam: ${what}`);
    const undo = act(parts);
    const isSeen = await comes(parts, (entry) => entry.id > id && isMet(entry), signal);
    const isServed = isSeen && (await comes(parts, (entry) => entry.id > id && isDone(entry), signal));
    undo?.();
    if (!isSeen) missed.push(what);
    else if (!isServed) missed.push(`${what}, and a call is answered after it`);
    if (signal.aborted) break;
  }
  return missed;
}

/** Whether such a request came already, or comes in time. */
function comes(
  { log, clock }: DrillParts,
  wanted: (entry: RequestEntry) => boolean,
  signal: AbortSignal,
): Promise<boolean> {
  if (log.list().some(wanted)) return Promise.resolve(true);
  return new Promise((resolve) => {
    const end = (isThere: boolean) => {
      stop();
      cancel();
      signal.removeEventListener('abort', giveUp);
      resolve(isThere);
    };
    const giveUp = () => end(false);
    const stop = log.onRequest((entry) => {
      if (wanted(entry)) end(true);
    });
    const cancel = clock.after(PATIENCE_MS, giveUp);
    signal.addEventListener('abort', giveUp, { once: true });
    if (signal.aborted) giveUp();
  });
}
