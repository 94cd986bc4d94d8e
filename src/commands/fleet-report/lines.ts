/** Pure: what one line of the report says of a gateway, from its `status --json`, of this version or another. */

/** A report that was read, or why it was not. */
export type ReadGateway = { gateway: string } & ({ status: unknown } | { unread: string });

export interface GatewayLine {
  gateway: string;
  /** Why nothing is known. */
  unread: string | null;
  state: string;
  version: string;
  /** Values that wait, and of them the oldest. */
  waiting: number;
  bytes: number;
  oldest_seconds: number;
  last_delivered_seconds_ago: number | null;
  failures: string[];
}

/** Values that have waited for so long make a gateway one that is behind. */
const BEHIND_SECONDS = 600;
const MAX_WORDS = 200;

export function lineOf(read: ReadGateway): GatewayLine {
  const { gateway } = read;
  const nothing = { state: '', version: '', waiting: 0, bytes: 0, oldest_seconds: 0, last_delivered_seconds_ago: null };
  if ('unread' in read) return { gateway, unread: read.unread, ...nothing, failures: [] };
  const status = membersOf(read.status);
  if (typeof status.state !== 'string')
    return { gateway, unread: 'it is no status of tagferry', ...nothing, failures: [] };
  const buffer = membersOf(status.buffer);
  const line = {
    gateway,
    unread: null,
    state: wordsOf(status.state),
    version: wordsOf(status.version),
    waiting: numberOf(buffer.values),
    bytes: numberOf(buffer.bytes),
    oldest_seconds: numberOf(buffer.oldest_age_seconds),
    last_delivered_seconds_ago: secondsOf(membersOf(status.uplink).last_delivered_seconds_ago),
  };
  return { ...line, failures: failuresOf(status, line.waiting > 0 ? line.oldest_seconds : 0) };
}

/** Those that nobody can see, then those with trouble, then those that wait longest. */
export function worstFirst(one: GatewayLine, other: GatewayLine): number {
  const rank = (line: GatewayLine) => (line.unread !== null ? 2 : line.failures.length > 0 ? 1 : 0);
  return rank(other) - rank(one) || other.oldest_seconds - one.oldest_seconds || (one.gateway < other.gateway ? -1 : 1);
}

function failuresOf(status: Members, oldestSeconds: number): string[] {
  const session = membersOf(status.session);
  const configuration = membersOf(status.configuration);
  const quarantined = numberOf(membersOf(status.buffer).quarantined);
  const silent = listOf(status.sources).filter((source) => membersOf(source).silent === true);
  const held = listOf(status.holds).length;
  return [
    ...(session.usable === false
      ? [`no token: ${wordsOf(membersOf(session.last_error).code) || 'not signed in'}`]
      : []),
    ...listOf(membersOf(status.buffer).problems).map(wordsOf),
    ...(configuration.refused === true ? ['its files are refused'] : []),
    ...(oldestSeconds > BEHIND_SECONDS ? ['behind'] : []),
    ...(silent.length > 0 ? [`silent: ${silent.map((source) => wordsOf(membersOf(source).name)).join(', ')}`] : []),
    ...(held > 0 ? [`${held} held`] : []),
    ...(quarantined > 0 ? [`${quarantined} in quarantine`] : []),
  ];
}

type Members = Readonly<Record<string, unknown>>;

function membersOf(value: unknown): Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Members) : {};
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const numberOf = (value: unknown): number => (typeof value === 'number' && Number.isFinite(value) ? value : 0);
const secondsOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null;
const wordsOf = (value: unknown): string => (typeof value === 'string' ? value.slice(0, MAX_WORDS) : '');
