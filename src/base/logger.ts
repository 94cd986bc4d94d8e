import { fstatSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { isatty } from 'node:tty';
import { type DestinationStream, type Logger as PinoLogger, pino, symbols } from 'pino';
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

interface OutputOptions {
  fd: number;
  format: Exclude<LogFormat, 'auto'>;
  toJournal: boolean;
  recent: RecentLines | undefined;
}

/**
 * Writes each line in its format. Journal lines start with their priority. A line that cannot be written (full file
 * system, closed pipe, I/O error) is dropped and counted, so that a failed write never stops the process. When output
 * is writable again, a line with the number of dropped lines precedes the next line.
 */
class LogOutput implements DestinationStream {
  readonly [symbols.needsMetadataGsym] = true;
  /** Level of the line, set by pino. */
  lastLevel = 30;
  readonly #options: OutputOptions;
  readonly #textOf: (line: string) => string;
  /** Number of lines dropped since the latest written line. */
  #dropped = 0;
  /** Whether the output ends with a partial line. */
  #isTorn = false;

  constructor(options: OutputOptions) {
    this.#options = options;
    this.#textOf = formatter(options);
  }

  write(line: string): void {
    const { recent } = this.#options;
    recent?.add(line);
    if (this.#dropped > 0 && this.#write(droppedLine(this.#dropped), 40)) this.#dropped = 0;
    if (this.#dropped === 0 && this.#write(line, this.lastLevel)) return;
    this.#dropped++;
    recent?.countDropped();
  }

  /** Writes synchronously, so that no line is lost on exit. Returns false if part of the line was not written. */
  #write(line: string, level: number): boolean {
    const { fd, toJournal } = this.#options;
    const text = toJournal ? `<${syslogPriority(level)}>${this.#textOf(line)}` : this.#textOf(line);
    const bytes = Buffer.from(this.#isTorn ? `\n${text}` : text);
    let written = 0;
    try {
      while (written < bytes.length) written += writeSync(fd, bytes, written);
      this.#isTorn = false;
      return true;
    } catch {
      this.#isTorn ||= written > 0;
      return false;
    }
  }
}

const timeNow = () => new Date(systemClock.wallMs()).toISOString();

function droppedLine(lines: number): string {
  const msg = 'log lines dropped, output was not writable';
  return `${JSON.stringify({ level: 'warn', time: timeNow(), event: 'log.lines_dropped', lines, msg })}\n`;
}

function formatter({ format, toJournal }: OutputOptions): (line: string) => string {
  if (format === 'logfmt') return (line) => `${logfmtOf(line, toJournal)}\n`;
  if (format === 'json') return (line) => line;
  // Loaded on demand, because an agent under systemd does not need it.
  const { prettyFactory } = createRequire(import.meta.url)('pino-pretty') as typeof import('pino-pretty');
  return prettyFactory({ ignore: 'event', translateTime: 'SYS:HH:MM:ss.l' });
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
  return isatty(fd) ? 'pretty' : 'json';
}

/** Creates the logger of a process. */
export function createLogger(options: LoggerOptions): Logger {
  const fd = options.fd ?? 1;
  const toJournal = isJournal(fd, options.environment ?? process.env);
  const format = resolveFormat(options, fd, toJournal);
  return pino(
    {
      level: options.level,
      base: null,
      timestamp: () => `,"time":"${timeNow()}"`,
      redact: { paths: REDACT_PATHS, censor: '[redacted]' },
      formatters: { level: (label: string) => ({ level: label }) },
    },
    new LogOutput({ fd, format, toJournal, recent: options.recent }),
  );
}

/** For tests and for commands that print their own output. */
export function silentLogger(): Logger {
  return pino({ level: 'silent' });
}
