/** Converts a gateway's `status --json` output, of any version, into a report line. */

import type { StatusReport } from '../../ops/status-report.ts';
import { noTokenState } from '../../platform/response-meanings.ts';

/** A status report, or the reason why it could not be read. */
export type ReadGateway = { gateway: string } & ({ status: unknown } | { unread: string });

export interface GatewayLine {
  gateway: string;
  /** Reason why the status report could not be read. */
  unread: string | null;
  state: string;
  version: string;
  config_version: string;
  /** Digest of the applied configuration files. */
  config_files: string;
  /** Digest of the applied configuration. */
  config_digest: string;
  waiting: number;
  bytes: number;
  oldest_seconds: number;
  last_delivered_seconds_ago: number | null;
  failures: string[];
}

/** Age of the oldest buffered value above which a gateway is reported as behind. */
const BEHIND_SECONDS = 600;
const MAX_WORDS = 200;

export function lineOf(read: ReadGateway): GatewayLine {
  const { gateway } = read;
  const nothing = {
    state: '',
    version: '',
    config_version: '',
    config_files: '',
    config_digest: '',
    waiting: 0,
    bytes: 0,
    oldest_seconds: 0,
    last_delivered_seconds_ago: null,
  };
  if ('unread' in read) return { gateway, unread: read.unread, ...nothing, failures: [] };
  const status = membersOf<StatusReport>(read.status);
  if (typeof status.state !== 'string')
    return { gateway, unread: 'not a tagferry status report', ...nothing, failures: [] };
  const buffer = membersOf<StatusReport['buffer']>(status.buffer);
  const configuration = membersOf<StatusReport['configuration']>(status.configuration);
  const line = {
    gateway,
    unread: null,
    state: wordsOf(status.state),
    version: wordsOf(status.version),
    config_version: wordsOf(configuration.version),
    config_files: wordsOf(configuration.files_digest),
    config_digest: wordsOf(configuration.digest),
    waiting: numberOf(buffer.values),
    bytes: numberOf(buffer.bytes),
    oldest_seconds: numberOf(buffer.oldest_age_seconds),
    last_delivered_seconds_ago: secondsOf(membersOf<StatusReport['uplink']>(status.uplink).last_delivered_seconds_ago),
  };
  return { ...line, failures: failuresOf(status, line.waiting > 0 ? line.oldest_seconds : 0) };
}

/** Sorts unreadable gateways first, then those with failures, then by the age of buffered values. */
export function worstFirst(one: GatewayLine, other: GatewayLine): number {
  const rank = (line: GatewayLine) => (line.unread !== null ? 2 : line.failures.length > 0 ? 1 : 0);
  return rank(other) - rank(one) || other.oldest_seconds - one.oldest_seconds || (one.gateway < other.gateway ? -1 : 1);
}

function failuresOf(status: Members<StatusReport>, oldestSeconds: number): string[] {
  const session = membersOf<StatusReport['session']>(status.session);
  const lastError = membersOf<NonNullable<StatusReport['session']['last_error']>>(session.last_error);
  const code = wordsOf(lastError.code);
  const { refused, changed_files } = membersOf<StatusReport['configuration']>(status.configuration);
  const { problems, quarantined } = membersOf<StatusReport['buffer']>(status.buffer);
  const sources = listOf(status.sources).map((source) => membersOf<StatusReport['sources'][number]>(source));
  const silent = sources.filter((source) => source.silent === true).map(({ name }) => wordsOf(name));
  const changed = listOf(changed_files).map(wordsOf);
  const holds = listOf(status.holds).map((hold) => membersOf<StatusReport['holds'][number]>(hold));
  const held = holds.filter((hold) => hold.values_wait !== false).length;
  const conflicts = listOf(status.identity_conflicts).map((conflict) =>
    wordsOf(membersOf<StatusReport['identity_conflicts'][number]>(conflict).kind),
  );
  // If no agent is running, `status --json` prints the error instead of the report.
  const { message } = membersOf<{ message: string }>(status);
  return [
    ...(message === undefined ? [] : [wordsOf(message)]),
    ...(session.usable === false ? [`${noTokenState(code)}: ${code || 'no error reported'}`] : []),
    ...listOf(problems).map(wordsOf),
    ...(typeof refused === 'object' && refused !== null ? ['configuration rejected'] : []),
    ...(changed.length > 0 ? [`changed but not loaded: ${changed.join(', ').slice(0, MAX_WORDS)}`] : []),
    ...(conflicts.length > 0 ? [`another agent with the same identity (${conflicts.join(', ')})`] : []),
    ...(oldestSeconds > BEHIND_SECONDS ? ['behind'] : []),
    ...(silent.length > 0 ? [`silent: ${silent.join(', ')}`] : []),
    ...(held > 0 ? [`${held} held`] : []),
    ...(numberOf(quarantined) > 0 ? [`${numberOf(quarantined)} in quarantine`] : []),
  ];
}

/**
 * Members that a report of any version may have. The compiler checks their names; their values are checked at run time.
 */
type Members<Report> = { readonly [Name in keyof Report]?: unknown };

function membersOf<Report>(value: unknown): Members<Report> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Members<Report>) : {};
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const numberOf = (value: unknown): number => (typeof value === 'number' && Number.isFinite(value) ? value : 0);
const secondsOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null;
const wordsOf = (value: unknown): string => (typeof value === 'string' ? value.slice(0, MAX_WORDS) : '');
