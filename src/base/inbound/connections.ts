/**
 * The connections of a listener, so that strangers who send slowly, or nothing, do not keep the others out:
 *
 *   quiet ──► reading ──► waiting ──► quiet        (a request's body comes; it is worked on and answered)
 *               └───────► streaming ──► quiet      (a body that may go on for ever)
 *
 * Quiet is a connection without a complete head, new or between two requests. It gives its place to a newcomer, the one that is
 * quiet longest first: so under a flood each newcomer has the time in which the flood fills the whole table, which is
 * enough for its head. Bodies under way and streams have bounds of their own below that of all, beyond which the slowest body,
 * or a stream that has long brought nothing, gives way. Who waits for its answer keeps its place, unless it does not read it or
 * waits for several: a client that sends the next request before it has the answer takes the time of others.
 * One address has a quarter of the places at most; not so loopback and Unix sockets, behind which a proxy may stand for many.
 */

/** Of a body, in any two looks: the slowest modem link is some times faster. */
const SLOWEST_BYTES_PER_SECOND = 250;
/** Slower bodies than this would not end within their time if they were large: they give their memory to others. */
const YIELDING_BYTES_PER_SECOND = 16_384;
/** Younger than this nobody is slow. */
const GRACE_MS = 1_000;
/** A stream may bring a line an hour; after so long it gives its place, if another stream wants it. */
const STALE_STREAM_MS = 60_000;

export type ConnectionState = 'quiet' | 'reading' | 'streaming' | 'waiting';

/** One connection, as decisions see it. */
export interface Connection {
  state: ConnectionState;
  openedMs: number;
  /** Since when it is in that state. */
  sinceMs: number;
  /** `undefined`: loopback or a Unix socket. */
  address: string | undefined;
  bytesRead: number;
  /** Of them those of the body under way. */
  bodyBytes: number;
  /** What it had sent one and two looks ago, or when its body began. */
  marks: readonly { atMs: number; bytes: number }[];
  /** Since when nothing of what was written to it has gone out; `undefined` where nothing waits. */
  unreadSinceMs: number | undefined;
  /** Requests that came and are not answered whole. */
  requests: number;
}

export interface ConnectionBounds {
  all: number;
  /** Bodies under way. */
  reading: number;
  streaming: number;
  ofOneAddress: number;
}

export function boundsFor(connections: number): ConnectionBounds {
  const share = (parts: number) => Math.max(1, Math.floor(connections / parts));
  return { all: connections, reading: share(2), streaming: share(8), ofOneAddress: share(4) };
}

/** Bytes a second since the look before the last; Infinity where it is too young to tell. */
export function rateOf({ marks, bytesRead }: Pick<Connection, 'marks' | 'bytesRead'>, nowMs: number): number {
  const [from] = marks;
  const forMs = from ? nowMs - from.atMs : 0;
  return forMs < GRACE_MS ? Number.POSITIVE_INFINITY : ((bytesRead - from!.bytes) * 1000) / forMs;
}

/** Who makes place for a newcomer; `undefined` where all are at work. */
export function placeFor<Each extends Connection>(connections: Iterable<Each>, nowMs: number): Each | undefined {
  let longQuiet: Each | undefined;
  /** The oldest connection: one that is quiet again and again must not outlive who has just come. */
  let quiet: Each | undefined;
  let unread: Each | undefined;
  // Those for which it may be nothing but bad luck come last.
  let pipelining: Each | undefined;
  let young: Each | undefined;
  const reading: Each[] = [];
  for (const each of connections) {
    if (each.state === 'quiet') {
      if (nowMs - each.sinceMs >= GRACE_MS) {
        if (!longQuiet || each.sinceMs < longQuiet.sinceMs) longQuiet = each;
      } else if (!quiet || each.openedMs < quiet.openedMs) quiet = each;
    } else if (each.state === 'reading') {
      reading.push(each);
    } else if (each.unreadSinceMs !== undefined && nowMs - each.unreadSinceMs >= GRACE_MS) {
      if (!unread || each.unreadSinceMs < unread.unreadSinceMs!) unread = each;
    } else if (each.requests > 1) {
      if (!pipelining || each.requests > pipelining.requests) pipelining = each;
    } else if (each.unreadSinceMs !== undefined) {
      if (!young || each.unreadSinceMs < young.unreadSinceMs!) young = each;
    }
  }
  // A newcomer of this moment is quiet too, and comes after those who are here for more than their share.
  const slow = () => slowestOf(reading, nowMs, SLOWEST_BYTES_PER_SECOND);
  return longQuiet ?? unread ?? slow() ?? pipelining ?? young ?? quiet;
}

/** The slowest body below a rate. */
function slowestOf<Each extends Connection>(
  connections: Iterable<Each>,
  nowMs: number,
  below = Number.POSITIVE_INFINITY,
): Each | undefined {
  let slowest: Each | undefined;
  let lowest = below;
  for (const each of connections) {
    if (each.state !== 'reading') continue;
    const rate = rateOf(each, nowMs);
    if (rate >= lowest) continue;
    lowest = rate;
    slowest = each;
  }
  return slowest;
}

/** Who of the bodies under way gives way to one more: the slowest, and where all are young the oldest. */
export function bodyFor<Each extends Connection>(connections: Iterable<Each>, nowMs: number): Each | undefined {
  const reading = [...connections].filter(({ state }) => state === 'reading');
  return slowestOf(reading, nowMs) ?? oldestOf(reading);
}

/** Whose body gives its memory to others: the largest of those that come slowly. */
export function largestSlow<Each extends Connection>(connections: Iterable<Each>, nowMs: number): Each | undefined {
  let largest: Each | undefined;
  for (const each of connections) {
    if (each.state !== 'reading' || rateOf(each, nowMs) >= YIELDING_BYTES_PER_SECOND) continue;
    if (!largest || each.bodyBytes > largest.bodyBytes) largest = each;
  }
  return largest;
}

/** Which stream gives way to one more: the one that has brought nothing for longest, if for long. */
export function streamFor<Each extends Connection>(connections: Iterable<Each>, nowMs: number): Each | undefined {
  const stale = [...connections].filter(
    ({ state, sinceMs }) => state === 'streaming' && nowMs - sinceMs >= STALE_STREAM_MS,
  );
  return oldestOf(stale);
}

/** Whether a body has taken longer than anybody has to. */
export function isTooSlow(connection: Connection, nowMs: number, requestMs: number): boolean {
  if (connection.state !== 'reading') return false;
  if (nowMs - connection.sinceMs >= requestMs) return true;
  return connection.marks.length > 1 && rateOf(connection, nowMs) < SLOWEST_BYTES_PER_SECOND;
}

/** Whether its peer does not read what it is sent. */
export function isUnread({ unreadSinceMs }: Connection, nowMs: number, unreadMs: number): boolean {
  return unreadSinceMs !== undefined && nowMs - unreadSinceMs >= unreadMs;
}

function oldestOf<Each extends Connection>(connections: readonly Each[]): Each | undefined {
  let oldest: Each | undefined;
  for (const each of connections) if (!oldest || each.sinceMs < oldest.sinceMs) oldest = each;
  return oldest;
}
