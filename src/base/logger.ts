import { fstatSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type DestinationStream, destination, type Logger as PinoLogger, pino, symbols } from 'pino';
import { systemClock } from './clock.ts';
import { logfmtLine } from './logfmt.ts';
import type { RecentLines } from './recent-lines.ts';

/**
 * Logger based on pino. Each line has an `event` that is stable across releases. Messages are constant; details are
 * in fields.
 */
export type Logger = PinoLogger;

type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent';
type LogFormat = 'auto' | 'pretty' | 'logfmt' | 'json';

export interface LoggerOptions {
  level: LogLevel;
  /** `auto`: pretty on a terminal, logfmt in the systemd journal, otherwise JSON. */
  format: LogFormat;
  /** File descriptor to write to. Default: 1. */
  fd?: number;
  environment?: NodeJS.ProcessEnv;
  /** Also stores the latest lines as JSON with masked secrets, regardless of the format. */
  recent?: RecentLines;
}

/**
 * Fields that are always removed, at the top level or one level below. This is only a safeguard: they should not be
 * logged at all.
 */
const SECRET_FIELDS = [
  'access_token',
  'refresh_token',
  'accessToken',
  'refreshToken',
  'client_secret',
  'clientSecret',
  'password',
  'secret',
  'token',
  'authorization',
  'Authorization',
  'code_verifier',
];

const REDACT_PATHS = SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]);

/** syslog(3) priorities, as journald reads them from `<n>` at the start of a line. */
function syslogPriority(level: number): number {
  if (level >= 60) return 2;
  if (level >= 50) return 3;
  if (level >= 40) return 4;
  if (level >= 30) return 6;
  return 7;
}

/** Writes each line in its format. Journal lines start with their priority. pino passes the level in `lastLevel`. */
function lineDestination(
  under: DestinationStream,
  { isLogfmt, toJournal, recent }: { isLogfmt: boolean; toJournal: boolean; recent: RecentLines | undefined },
): DestinationStream {
  return {
    [symbols.needsMetadataGsym]: true,
    lastLevel: 30,
    write(this: { lastLevel: number }, line: string) {
      recent?.add(line);
      const text = isLogfmt ? `${logfmtOf(line, toJournal)}\n` : line;
      under.write(toJournal ? `<${syslogPriority(this.lastLevel)}>${text}` : text);
    },
  } as DestinationStream;
}

/** Writes event and message first. Omits the time for the journal, which adds its own. */
function logfmtOf(line: string, toJournal: boolean): string {
  const { time, level, event, msg, ...members } = JSON.parse(line) as Record<string, unknown>;
  const head = { time: toJournal ? undefined : time, level, event, msg };
  const present = Object.entries(head).filter(([, value]) => value !== undefined);
  return logfmtLine({ ...Object.fromEntries(present), ...members });
}

/**
 * Whether a file descriptor is the journal stream opened by systemd. Redirected output has a different device or inode
 * (systemd.exec(5)).
 */
export function isJournal(fd: number, environment: NodeJS.ProcessEnv): boolean {
  if (environment.JOURNAL_STREAM === undefined) return false;
  const { dev, ino } = fstatSync(fd);
  return environment.JOURNAL_STREAM === `${dev}:${ino}`;
}

function resolveFormat({ format }: LoggerOptions, fd: number, toJournal: boolean): Exclude<LogFormat, 'auto'> {
  if (format !== 'auto') return format;
  if (toJournal) return 'logfmt';
  const stream = fd === 2 ? process.stderr : process.stdout;
  return stream.isTTY ? 'pretty' : 'json';
}

/** Creates the logger of a process. Lines are written synchronously, so that no lines are lost on exit. */
export function createLogger(options: LoggerOptions): Logger {
  const fd = options.fd ?? 1;
  const toJournal = isJournal(fd, options.environment ?? process.env);
  const format = resolveFormat(options, fd, toJournal);
  const base = {
    level: options.level,
    base: null,
    timestamp: () => `,"time":"${new Date(systemClock.wallMs()).toISOString()}"`,
    redact: { paths: REDACT_PATHS, censor: '[redacted]' },
    formatters: { level: (label: string) => ({ level: label }) },
  };
  if (format === 'pretty') {
    // Loaded on demand, because an agent under systemd does not need it.
    const pretty = createRequire(import.meta.url)('pino-pretty') as typeof import('pino-pretty');
    const stream = pretty({ destination: fd, sync: true, ignore: 'event', translateTime: 'SYS:HH:MM:ss.l' });
    return pino(base, lineDestination(stream, { isLogfmt: false, toJournal: false, recent: options.recent }));
  }
  const plain = destination({ fd, sync: true });
  return pino(base, lineDestination(plain, { isLogfmt: format === 'logfmt', toJournal, recent: options.recent }));
}

/** For tests and for commands that print their own output. */
export function silentLogger(): Logger {
  return pino({ level: 'silent' });
}
