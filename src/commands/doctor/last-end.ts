import { plain } from '../../base/foreign-text.ts';
import { outputOf } from '../program-output.ts';

const MAX_ENTRIES = 200;
const MAX_SHOWN = 300;

/** What the service said last before it ended, in its own words; `undefined` where the journal does not tell. */
export async function wordsOfLastEnd(unit: string): Promise<string | undefined> {
  const args = ['-u', unit, '-n', String(MAX_ENTRIES), '-o', 'json', '--no-pager', '-q'];
  const text = await outputOf('journalctl', args);
  return text === undefined ? undefined : lastWords(text.split('\n').flatMap(entryOf));
}

interface Entry {
  text: string;
  isManager: boolean;
}

function entryOf(line: string): Entry[] {
  try {
    const { MESSAGE: text, _PID: pid, SYSLOG_IDENTIFIER: name } = JSON.parse(line) as Record<string, unknown>;
    return typeof text === 'string' ? [{ text, isManager: name === 'systemd' || pid === '1' }] : [];
  } catch {
    return [];
  }
}

/** Of the lines before the manager's word that the process ended: its error with its hint, else its last line. */
function lastWords(entries: readonly Entry[]): string | undefined {
  const end = entries.findLastIndex(({ text, isManager }) => isManager && /Main process exited/.test(text));
  if (end < 0) return undefined;
  const own = entries.slice(0, end).filter(({ isManager }) => !isManager);
  const last = own.findLast(({ text }) => isEnd(text)) ?? own.at(-1);
  return last && plain(shown(last.text)).slice(0, MAX_SHOWN);
}

function isEnd(text: string): boolean {
  return /"event":"(agent\.start_failed|store\.dead)"|^tagferry: |: warning: |is not configured/.test(text);
}

function shown(text: string): string {
  try {
    const { msg, error, hint } = JSON.parse(text) as Record<string, unknown>;
    return [msg, error, hint].filter((part) => typeof part === 'string').join(': ');
  } catch {
    return text;
  }
}
