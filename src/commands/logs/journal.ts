/** The service's journal, by `journalctl`: never through a shell. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { UNIT } from '../service-unit.ts';
import { type LogLine, readEntry } from './log-line.ts';

const OF_UNIT = ['-u', UNIT, '--no-pager'];
/** journalctl leaves members of more than 4 kB out unless it is told `--all`. */
const AS_JSON = [...OF_UNIT, '-o', 'json', '--all', '-q', '--output-fields=MESSAGE,PRIORITY,SYSLOG_IDENTIFIER'];
/** How far back is looked for lines that fit, unless a time is named. */
const MAX_LOOKED_AT = 100_000;

/** `readable`; `forbidden` to this user; `empty`: nothing of the service in it; `absent`: no journal, or none that answers. */
export type JournalState = 'readable' | 'forbidden' | 'empty' | 'absent';

export async function journalState(): Promise<JournalState> {
  let said = '';
  let lines = 0;
  const child = journalctl([...OF_UNIT, '-o', 'cat', '-n', '1']);
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(0, 4_000);
  });
  child.stdout.on('data', () => lines++);
  const status = await ended(child);
  // "insufficient permissions" where no file may be read, "not seeing messages from other users" where only one's own may.
  if (/permission|not seeing messages/i.test(said)) return 'forbidden';
  if (status !== 0 || /no journal files/i.test(said)) return 'absent';
  return lines === 0 ? 'empty' : 'readable';
}

/** What is asked of whoever has the lines: the journal, or the daemon. */
export interface Reading {
  isChosen(line: LogLine): boolean;
  sinceMs?: number | undefined;
  /** The last so many that fit; all where it is not given. */
  limit?: number | undefined;
  follow: boolean;
  show(line: LogLine): void;
  /** For the person, beside the lines. */
  say(text: string): void;
  signal: AbortSignal;
}

/** Shows what is there, then what comes until the signal fires. */
export async function readJournal(read: Reading): Promise<void> {
  const since = read.sinceMs === undefined ? [] : [`--since=@${Math.floor(read.sinceMs / 1000)}`];
  const cursor = read.limit === undefined ? await readForward(since, read) : await readLast(since, read.limit, read);
  if (!read.follow || read.signal.aborted) return;
  const from = cursor === undefined ? ['--lines=0'] : [`--after-cursor=${cursor}`, '--no-tail'];
  for await (const { line } of entries(['--follow', ...from], read.signal)) if (read.isChosen(line)) read.show(line);
}

/** In order; gives the place where it ended. */
async function readForward(since: readonly string[], { isChosen, show, signal }: Reading) {
  let last: string | undefined;
  for await (const { line, cursor } of entries(since, signal)) {
    last = cursor;
    if (isChosen(line)) show(line);
  }
  return last;
}

/** From the end, until there are enough; gives the place of the newest. */
async function readLast(since: readonly string[], limit: number, { isChosen, show, signal }: Reading) {
  const bound = since.length > 0 ? since : ['-n', String(MAX_LOOKED_AT)];
  const enough = new AbortController();
  const found: LogLine[] = [];
  let newest: string | undefined;
  for await (const { line, cursor } of entries(['-r', ...bound], AbortSignal.any([signal, enough.signal]))) {
    newest ??= cursor;
    if (found.length < limit && isChosen(line)) found.push(line);
    if (found.length >= limit) enough.abort();
  }
  for (const line of found.reverse()) show(line);
  return newest;
}

async function* entries(
  args: readonly string[],
  signal: AbortSignal,
): AsyncGenerator<{ line: LogLine; cursor: string }> {
  const child = journalctl([...AS_JSON, ...args]);
  child.stderr.resume();
  const end = () => child.kill('SIGTERM');
  signal.addEventListener('abort', end, { once: true });
  try {
    for await (const text of createInterface({ input: child.stdout })) {
      if (signal.aborted) return;
      const entry = readEntry(text);
      if (entry) yield entry;
    }
  } finally {
    signal.removeEventListener('abort', end);
    end();
  }
}

type Child = ChildProcessByStdio<null, Readable, Readable>;

function journalctl(args: readonly string[]): Child {
  const environment = { ...process.env, LC_ALL: 'C' };
  const child = spawn('journalctl', args, { stdio: ['ignore', 'pipe', 'pipe'], env: environment });
  // Where it is not installed: the end says so.
  child.on('error', () => {});
  return child;
}

function ended(child: Child): Promise<number> {
  return new Promise((resolve) => {
    child.once('error', () => resolve(-1));
    child.once('close', (code) => resolve(code ?? -1));
  });
}
