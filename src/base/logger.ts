import { createRequire } from 'node:module';
import { type DestinationStream, destination, type Logger as PinoLogger, pino, symbols } from 'pino';
import { systemClock } from './clock.ts';
import type { RecentLines } from './recent-lines.ts';

/**
 * The log: pino with one line a happening. Every line carries `event`, a name that stays the same from release to
 * release; the message is constant and what varies stands in fields.
 */
export type Logger = PinoLogger;

type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent';
type LogFormat = 'auto' | 'pretty' | 'json' | 'journal';

export interface LoggerOptions {
  level: LogLevel;
  /** `auto`: pretty on a terminal, `journal` (JSON with a syslog priority) under systemd, else JSON. */
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

/** Puts `<priority>` before each line; pino tells the level through `lastLevel`. */
function journalDestination(under: DestinationStream, recent: RecentLines | undefined): DestinationStream {
  return {
    [symbols.needsMetadataGsym]: true,
    lastLevel: 30,
    write(this: { lastLevel: number }, line: string) {
      recent?.add(line);
      under.write(`<${syslogPriority(this.lastLevel)}>${line}`);
    },
  } as DestinationStream;
}

/** Keeps each line on its way. */
function keeping(under: DestinationStream, recent: RecentLines | undefined): DestinationStream {
  if (recent === undefined) return under;
  return {
    write(line: string) {
      recent.add(line);
      under.write(line);
    },
  };
}

function resolveFormat(options: LoggerOptions, fd: number): Exclude<LogFormat, 'auto'> {
  if (options.format !== 'auto') return options.format;
  const environment = options.environment ?? process.env;
  if (environment.JOURNAL_STREAM !== undefined) return 'journal';
  const stream = fd === 2 ? process.stderr : process.stdout;
  return stream.isTTY ? 'pretty' : 'json';
}

/** Makes the log of one process. Lines are written synchronously, so that the last one before an exit is never lost. */
export function createLogger(options: LoggerOptions): Logger {
  const fd = options.fd ?? 1;
  const format = resolveFormat(options, fd);
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
    return pino(base, keeping(stream, options.recent));
  }
  const plain = destination({ fd, sync: true });
  return pino(base, format === 'journal' ? journalDestination(plain, options.recent) : keeping(plain, options.recent));
}

/** For tests and for verbs that print their own answer. */
export function silentLogger(): Logger {
  return pino({ level: 'silent' });
}
