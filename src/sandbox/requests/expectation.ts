import { durationText } from '../../base/amounts.ts';
import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import { type FaultMatch, matches } from '../faults.ts';
import type { RequestEntry } from '../http/request-entry.ts';
import type { RequestLog } from '../http/request-log.ts';
import type { Exchange } from './exchange.ts';
import { type WholeRequest, wholeRequest } from './whole-request.ts';

/** Which requests are meant. Everything left out matches everything. */
export interface RequestMatch extends FaultMatch {
  /** What it was answered; 0 is a broken connection. */
  status?: number;
  /** Members that its JSON body has, at any depth; of a list, elements that are among its own. */
  body?: unknown;
  /** Only requests after the one of this id. */
  after?: number;
}

/** "A post for asset 881 within 5 s": what a test expects of a client. */
export interface Expectation extends RequestMatch {
  /** So many at least; 1 unless given. */
  times?: number;
  /** How long to wait for them, in milliseconds; 5 s unless given, 0 looks at what came already. */
  withinMs?: number;
  /** That none comes within that time, nor came before. */
  never?: boolean;
}

export const DEFAULT_WITHIN_MS = 5_000;

/** An expectation that was not met; the message says what came instead. */
export class ExpectationError extends TagferryError {
  constructor(message: string) {
    super(message, { code: 'sandbox.expectation' });
  }
}

/** The exchanges of such requests, as far as they are kept, oldest first. */
export function exchangesOf(log: RequestLog, wanted: RequestMatch): Exchange[] {
  const those = log.list().filter((entry) => fits(entry, wanted, log.exchange(entry.id)));
  return those.flatMap(({ id }) => log.exchange(id) ?? []);
}

/** The same as others may see them. */
function matching(log: RequestLog, wanted: RequestMatch): WholeRequest[] {
  return exchangesOf(log, wanted).map(wholeRequest);
}

/**
 * Waits until the requests that are expected have come, those of before the call included (`after` leaves some out), and gives them. Throws
 * `ExpectationError` when the time is over, or where one comes that never should.
 */
export async function expectRequests(
  log: RequestLog,
  expectation: Expectation,
  clock: Clock,
  signal?: AbortSignal,
): Promise<WholeRequest[]> {
  const { times = 1, withinMs = DEFAULT_WITHIN_MS, never = false } = expectation;
  const needed = never ? 1 : times;
  const before = log.list().filter((entry) => fits(entry, expectation, log.exchange(entry.id))).length;
  const isThere = before >= needed || (await haveCome(log, expectation, needed - before, withinMs, clock, signal));
  const found = matching(log, expectation);
  if (isThere !== never) return found;
  const what = expectationText(expectation);
  if (never) throw new ExpectationError(`${what} was never to come, and did: ${lineOf(found[0]!)}`);
  const within = `within ${durationText(withinMs / 1000)}`;
  const missed =
    times === 1 ? `${what} did not come ${within}` : `${what} came ${found.length} of ${times} times ${within}`;
  throw new ExpectationError(`${missed}. ${insteadText(log, expectation)}`);
}

/** Whether so many more come in time. */
function haveCome(
  log: RequestLog,
  wanted: RequestMatch,
  count: number,
  withinMs: number,
  clock: Clock,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  return new Promise((resolve) => {
    let left = count;
    const end = (isThere: boolean) => {
      stopListening();
      cancel();
      signal?.removeEventListener('abort', giveUp);
      resolve(isThere);
    };
    const giveUp = () => end(false);
    const stopListening = log.onRequest((entry, exchange) => {
      if (fits(entry, wanted, exchange) && --left === 0) end(true);
    });
    const cancel = clock.after(withinMs, giveUp);
    signal?.addEventListener('abort', giveUp, { once: true });
    if (signal?.aborted) giveUp();
  });
}

function fits(entry: RequestEntry, wanted: RequestMatch, exchange: Exchange | undefined): boolean {
  if (wanted.after !== undefined && entry.id <= wanted.after) return false;
  if (wanted.status !== undefined && entry.status !== wanted.status) return false;
  if (!matches(wanted, entry.method, entry.path)) return false;
  return wanted.body === undefined || (exchange?.body !== undefined && holds(parsed(exchange.body), wanted.body));
}

/** Whether `actual` has everything that `wanted` says. */
function holds(actual: unknown, wanted: unknown): boolean {
  if (Array.isArray(wanted)) {
    return Array.isArray(actual) && wanted.every((one) => actual.some((other) => holds(other, one)));
  }
  if (typeof wanted !== 'object' || wanted === null) return Object.is(actual, wanted);
  if (typeof actual !== 'object' || actual === null) return false;
  return Object.entries(wanted).every(
    ([name, member]) => Object.hasOwn(actual, name) && holds((actual as Record<string, unknown>)[name], member),
  );
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
}

function expectationText({ method, path, asset, status, body }: Expectation): string {
  const words = [
    method?.toUpperCase() ?? 'a request',
    path ?? (asset === undefined ? '' : `of asset ${asset}`),
    status === undefined ? '' : `answered ${status}`,
    body === undefined ? '' : `with ${JSON.stringify(body).slice(0, 200)}`,
  ];
  return words.filter((word) => word !== '').join(' ');
}

function insteadText(log: RequestLog, { after = 0 }: Expectation): string {
  const others = log.list().filter(({ id }) => id > after);
  if (others.length === 0) return 'Nothing else came.';
  return `What came last: ${others.slice(-5).map(lineOf).join('; ')}.`;
}

function lineOf({ method, path, status }: RequestEntry): string {
  return `${method} ${path}: ${status === 0 ? 'no answer' : status}`;
}
