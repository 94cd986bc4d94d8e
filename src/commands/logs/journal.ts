/** Reads log lines from the service's journal, or from the running agent. Runs `journalctl` without a shell. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { counted } from '../../base/amounts.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { type AgentAddress, NoAgentError, streamFromAgent } from '../connection/control-client.ts';
import { UNIT } from '../service/service-unit.ts';
import { type LogLine, readEntry, readLine } from './log-line.ts';

const OF_UNIT = ['-u', UNIT, '--no-pager'];
/** Without `--all`, journalctl omits fields larger than 4 kB. */
const AS_JSON = [...OF_UNIT, '-o', 'json', '--all', '-q', '--output-fields=MESSAGE,PRIORITY,SYSLOG_IDENTIFIER'];
/** Maximum number of entries searched for matching lines, unless a time is given. */
const MAX_SEARCHED = 100_000;

/** `forbidden`: this user has no access. `empty`: the service has no entries. `absent`: there is no journal. */
export type JournalState = 'readable' | 'forbidden' | 'empty' | 'absent';

export async function journalState(): Promise<JournalState> {
  let messages = '';
  let lines = 0;
  const child = journalctl([...OF_UNIT, '-o', 'cat', '-n', '1']);
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    messages = (messages + text).slice(0, 4_000);
  });
  child.stdout.on('data', () => lines++);
  const status = await ended(child);
  // "insufficient permissions": no file is readable. "not seeing messages from other users": only this user's entries
  // are readable.
  if (/permission|not seeing messages/i.test(messages)) return 'forbidden';
  if (status !== 0 || /no journal files/i.test(messages)) return 'absent';
  return lines === 0 ? 'empty' : 'readable';
}

/** A request for log lines, independent of their source. */
export interface Reading {
  isChosen(line: LogLine): boolean;
  sinceMs?: number | undefined;
  /** Maximum number of matching lines; `undefined` means all. */
  limit?: number | undefined;
  follow: boolean;
  show(line: LogLine): void;
  /** Prints a message to the user, separate from the lines. */
  say(text: string): void;
  signal: AbortSignal;
}

/** Shows existing lines, then follows new ones until the signal fires. */
async function readJournal(read: Reading): Promise<void> {
  const since = read.sinceMs === undefined ? [] : [`--since=@${Math.floor(read.sinceMs / 1000)}`];
  const cursor = read.limit === undefined ? await readForward(since, read) : await readLast(since, read.limit, read);
  if (!read.follow || read.signal.aborted) return;
  const from = cursor === undefined ? ['--lines=0'] : [`--after-cursor=${cursor}`, '--no-tail'];
  for await (const { line } of entries(['--follow', ...from], read.signal)) if (read.isChosen(line)) read.show(line);
}

/** Returns the cursor of the final entry. */
async function readForward(since: readonly string[], { isChosen, show, signal }: Reading) {
  let last: string | undefined;
  for await (const { line, cursor } of entries(since, signal)) {
    last = cursor;
    if (isChosen(line)) show(line);
  }
  return last;
}

/** Reads backwards until there are enough lines. Returns the cursor of the newest entry. */
async function readLast(since: readonly string[], limit: number, { isChosen, show, signal }: Reading) {
  const bound = since.length > 0 ? since : ['-n', String(MAX_SEARCHED)];
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
  // A missing journalctl is reported by `ended`.
  child.on('error', () => {});
  return child;
}

function ended(child: Child): Promise<number> {
  return new Promise((resolve) => {
    child.once('error', () => resolve(-1));
    child.once('close', (code) => resolve(code ?? -1));
  });
}

const GROUPS =
  'To read the whole journal, use sudo, or add the user to the systemd-journal (or adm) group: `sudo usermod -aG systemd-journal NAME`, then sign in again.';

/** `isService`: whether systemd starts the agent, so that the journal contains its lines. */
export async function readLog(place: AgentAddress, isService: boolean, reading: Reading): Promise<void> {
  const journal = isService ? await journalState() : 'absent';
  if (journal === 'readable') return readJournal(reading);
  try {
    await readFromAgent(place, journal === 'forbidden', reading);
  } catch (error) {
    // The service has not been started yet, so follow the journal.
    if (journal === 'empty' && error instanceof NoAgentError) return readJournal(reading);
    throw journal === 'forbidden' ? neither(error) : error;
  }
}

/** Shows the lines that the agent keeps in memory, then follows new ones. */
async function readFromAgent(place: AgentAddress, isForbidden: boolean, reading: Reading): Promise<void> {
  const { isChosen, limit = Number.POSITIVE_INFINITY, follow, show, say, signal } = reading;
  const answer = await streamFromAgent(place, 'logs', { follow });
  const texts = createInterface({ input: answer });
  signal.addEventListener('abort', () => texts.close(), { once: true });
  if (isForbidden) {
    say(`This user cannot read the journal. Showing at most 1,000 lines from the memory of the agent. ${GROUPS}`);
  }
  let before = 0;
  const found: LogLine[] = [];
  const showFound = () => {
    for (const line of found.slice(Math.max(0, found.length - limit))) show(line);
  };
  try {
    for await (const text of texts) {
      const { kept, missed, ...line } = readLine(text);
      if (typeof kept === 'number') before = kept;
      else if (typeof missed === 'number') say(`${counted(missed, 'line')} skipped because the output is too slow.`);
      else if (before === 0) {
        if (isChosen(line)) show(line);
      } else {
        if (isChosen(line)) found.push(line);
        if (--before === 0) showFound();
      }
    }
  } catch (error) {
    if (!signal.aborted && codeOf(error) !== 'ECONNRESET') throw error;
  } finally {
    answer.destroy();
  }
  if (!follow || signal.aborted) return;
  throw new TagferryError('the agent has stopped', {
    code: 'daemon.absent',
    hint: 'Run `tagferry logs` again after the agent has started.',
  });
}

function neither(error: unknown): unknown {
  if (!(error instanceof TagferryError)) return error;
  return new TagferryError(`this user cannot read the journal, and ${error.message}`, {
    code: codeOf(error) ?? 'failed',
    hint: `${GROUPS}${error.hint === undefined ? '' : ` To read recent lines from the agent: ${error.hint}`}`,
    cause: error,
  });
}
