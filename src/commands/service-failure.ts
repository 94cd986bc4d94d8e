import { plain } from '../base/foreign-text.ts';
import { type LogLine, readEntry } from './logs/log-line.ts';
import { outputOf } from './program-output.ts';

const MAX_ENTRIES = 500;
const MAX_SHOWN = 300;

/** The error that ended a run of the service. */
export interface ServiceFailure {
  text: string;
  /** What the agent itself advised, as a sentence. */
  hint?: string;
}

/** What the journal contains about the run of the unit that ended. */
export interface EndedRun {
  /** `undefined` if the run ended without a logged error. */
  failure: ServiceFailure | undefined;
  /** Whether systemd scheduled a restart after the run; `undefined` if the run is not in the journal. */
  restarted: boolean | undefined;
}

/** MESSAGE_ID of systemd: "Scheduled restart job" (sd-messages.h). */
const RESTART_SCHEDULED = '5eb03494b6584870a536b337290809b3';
const FIELDS = ['MESSAGE', 'PRIORITY', 'SYSLOG_IDENTIFIER', 'MESSAGE_ID', '_SYSTEMD_INVOCATION_ID'];

interface Entry {
  line: LogLine;
  messageId: unknown;
  /** The run of the unit that wrote the entry; `undefined` for entries of systemd about the unit. */
  run: unknown;
}

/**
 * Reads how a run of the unit ended: the run with this invocation id, or the one before it. Members are `undefined` if this user may not
 * read the journal.
 */
export async function endedRun(unit: string, invocation: string, which: 'this' | 'previous'): Promise<EndedRun> {
  const fields = `--output-fields=${FIELDS.join(',')}`;
  const args = ['-u', unit, '-n', String(MAX_ENTRIES), '-o', 'json', '--all', '--no-pager', '-q', fields];
  const text = await outputOf('journalctl', args);
  const entries = (text ?? '').split('\n').flatMap(entryOf);
  // The run of this id may have ended since, and others may have followed.
  const start = entries.findIndex(({ run }) => run === invocation);
  const before = which === 'this' || start === -1 ? entries : entries.slice(0, start);
  const end = before.findLastIndex(({ run }) => run !== undefined && (which === 'previous' || run === invocation));
  if (end === -1) return { failure: undefined, restarted: undefined };
  const final = before.findLast((entry) => entry.run === before[end]!.run && isFinal(entry.line));
  const restarted = before.slice(end).some(({ messageId }) => messageId === RESTART_SCHEDULED);
  return { failure: final && failureIn(final.line), restarted };
}

function entryOf(text: string): Entry[] {
  const found = readEntry(text);
  if (!found) return [];
  const { MESSAGE_ID: messageId, _SYSTEMD_INVOCATION_ID: run } = JSON.parse(text) as Record<string, unknown>;
  return [{ line: found.line, messageId, run }];
}

/** An event of the agent is final at level fatal; text at error level is written by what runs before the agent. */
function isFinal({ level, event }: LogLine): boolean {
  return level === 'fatal' || (level === 'error' && event === undefined);
}

function failureIn({ msg, error, hint }: LogLine): ServiceFailure {
  const what = [error, msg].find((part) => typeof part === 'string' && part !== '') ?? 'unknown error';
  const text = plain(String(what));
  const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
  return typeof hint === 'string' ? { text: shown, hint: plain(hint) } : { text: shown };
}
