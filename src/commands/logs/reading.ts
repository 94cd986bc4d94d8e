/** Whose lines `tagferry logs` shows: the journal's, or those that the daemon itself keeps. */
import { createInterface } from 'node:readline';
import { counted } from '../../base/amounts.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { type DaemonPlace, NoDaemonError, streamFromDaemon } from '../control-client.ts';
import { journalState, type Reading, readJournal } from './journal.ts';
import { type LogLine, readLine } from './log-line.ts';

const GROUPS =
  'To read the whole journal use sudo, or add the user to the group systemd-journal (or adm): `sudo usermod -aG systemd-journal NAME`, then sign in anew.';

/** `isService`: the daemon is the one that systemd starts, so that the journal has its lines. */
export async function readLog(place: DaemonPlace, isService: boolean, reading: Reading): Promise<void> {
  const journal = isService ? await journalState() : 'absent';
  if (journal === 'readable') return readJournal(reading);
  try {
    await readDaemon(place, journal === 'forbidden', reading);
  } catch (error) {
    // Nothing of it yet: what comes is shown when it is started.
    if (journal === 'empty' && error instanceof NoDaemonError) return readJournal(reading);
    throw journal === 'forbidden' ? neither(error) : error;
  }
}

/** The lines that the daemon keeps, and those to come. */
async function readDaemon(place: DaemonPlace, isForbidden: boolean, reading: Reading): Promise<void> {
  const { isChosen, limit = Number.POSITIVE_INFINITY, follow, show, say, signal } = reading;
  const answer = await streamFromDaemon(place, 'logs', { follow });
  const texts = createInterface({ input: answer });
  signal.addEventListener('abort', () => texts.close(), { once: true });
  if (isForbidden) {
    say(
      `This user may not read the journal: these are the last lines (1,000 at most) that the daemon keeps. ${GROUPS}`,
    );
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
      else if (typeof missed === 'number') say(`${counted(missed, 'line')} went by too fast to be shown.`);
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
  throw new TagferryError('the daemon has stopped', {
    code: 'daemon.absent',
    hint: '`tagferry logs` again when it has started.',
  });
}

function neither(error: unknown): unknown {
  if (!(error instanceof TagferryError)) return error;
  return new TagferryError(`this user cannot read the journal, and ${error.message}`, {
    code: codeOf(error) ?? 'failed',
    hint: `${GROUPS}${error.hint === undefined ? '' : ` For the daemon's own last lines: ${error.hint}`}`,
    cause: error,
  });
}
