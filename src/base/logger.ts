import { fstatSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type DestinationStream, destination, type Logger as PinoLogger, pino, symbols } from 'pino';
import { systemClock } from './clock.ts';
import { logfmtLine } from './logfmt.ts';
import type { RecentLines } from './recent-lines.ts';

/**
 * The log: pino with one line a happening. Every line carries `event`, a name that stays the same from release to
 * release; the message is constant and what varies stands in fields.
 */
export type Logger = PinoLogger;

type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent';
type LogFormat = 'auto' | 'pretty' | 'logfmt' | 'json';

export interface LoggerOptions {
  level: LogLevel;
  /** `auto`: pretty on a terminal, logfmt in the systemd journal, otherwise JSON. */
  format: LogFormat;
  /** File descriptor to write to; 1 unless told. */
  fd?: number;
  environment?: NodeJS.ProcessEnv;
  /** Keeps the last lines too, as JSON and with what is masked masked, whatever the format. */
  recent?: RecentLines;
}

/** Fields that are never printed, at the top of a line or one object down. The last guard: nobody should log them at all. */
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

/** Writes each line in its format; a line for the journal starts with its priority. pino reports the level through `lastLevel`. */
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

/** Event and message first. The journal has a time of its own. */
function logfmtOf(line: string, toJournal: boolean): string {
  const { time, level, event, msg, ...members } = JSON.parse(line) as Record<string, unknown>;
  const head = { time: toJournal ? undefined : time, level, event, msg };
  const present = Object.entries(head).filter(([, value]) => value !== undefined);
  return logfmtLine({ ...Object.fromEntries(present), ...members });
}

/** Whether a file descriptor is the stream that systemd connected to its journal. A redirected output is not (systemd.exec(5)). */
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

/** Makes the log of one process. Lines are written synchronously, so that the last one before an exit is never lost. */
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
    // Loaded only here: a daemon under systemd never pays for the colours.
    const pretty = createRequire(import.meta.url)('pino-pretty') as typeof import('pino-pretty');
    const stream = pretty({ destination: fd, sync: true, ignore: 'event', translateTime: 'SYS:HH:MM:ss.l' });
    return pino(base, lineDestination(stream, { isLogfmt: false, toJournal: false, recent: options.recent }));
  }
  const plain = destination({ fd, sync: true });
  return pino(base, lineDestination(plain, { isLogfmt: format === 'logfmt', toJournal, recent: options.recent }));
}

/** For tests and for verbs that print their own answer. */
export function silentLogger(): Logger {
  return pino({ level: 'silent' });
}
