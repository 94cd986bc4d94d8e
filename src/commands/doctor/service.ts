import { uptime } from 'node:os';
import { counted, durationText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { outputOf } from '../program-output.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';
import { wordsOfLastEnd } from './last-end.ts';
import { checkServiceMemory } from './service-memory.ts';

const UNIT = 'tagferry.service';
const PROPERTIES =
  'LoadState,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus,NRestarts,ExecMainStartTimestampMonotonic,MemoryHigh,MemoryMax';
/** A service that was started again, and has not run for so long since, is one that ends again and again. */
const SETTLED_S = 120;
const MAX_ERRORS = 200;

/** The daemon and its service: does it answer, how did it end last, what did it complain of in the last day. */
export async function checkService(consultation: Consultation): Promise<CheckLine[]> {
  const { daemon, daemonTrouble, place } = consultation;
  const unit = await unitState();
  const lines: CheckLine[] = [];
  if (daemon) {
    const up = `up ${durationText(daemon.uptime_seconds)}`;
    const text = `tagferry ${daemon.version} answers: ${daemon.state}, ${up}, ${counted(daemon.buffer.values, 'value')} in the buffer`;
    const problems = daemon.buffer.problems.map(plain).join('; ');
    if (problems !== '')
      lines.push(failure('daemon', `${text}: ${problems}`, 'Free space for STATE_DIR, or look at its disk.'));
    else if (daemon.state === 'online') lines.push(ok('daemon', text));
    else lines.push(warning('daemon', text, 'See `tagferry status`, and the lines below.'));
  } else if (daemonTrouble !== undefined) {
    lines.push(warning('daemon', plain(daemonTrouble.text), plain(daemonTrouble.next)));
  } else if (unit?.ActiveState === 'active') {
    const next = 'Name the configuration of the service with --config, or restart it: `systemctl restart tagferry`.';
    lines.push(failure('daemon', `the service is active, but nobody answers at ${place.socket}`, next));
  } else {
    lines.push(warning('daemon', 'no daemon answers', 'Start it: `systemctl start tagferry`, or `tagferry run`.'));
  }
  if (unit) {
    const memory = checkServiceMemory(unit, consultation.configuration);
    lines.push(await unitLine(unit), ...memory, ...(await journalLines()));
  }
  return lines;
}

async function unitState(): Promise<Record<string, string> | undefined> {
  const text = await outputOf('systemctl', ['show', UNIT, `--property=${PROPERTIES}`]);
  if (text === undefined) return undefined;
  const unit = Object.fromEntries(text.split('\n').map((line) => line.split(/=(.*)/s).slice(0, 2)));
  return unit.LoadState === 'loaded' ? unit : undefined;
}

async function unitLine(unit: Record<string, string>): Promise<CheckLine> {
  const restarts = Number(unit.NRestarts ?? 0);
  const text = `${UNIT} is ${unit.ActiveState} (${unit.SubState}), last result ${unit.Result}, restarted ${counted(restarts, 'time')}`;
  const words = async () => {
    const words = await wordsOfLastEnd(UNIT);
    return words === undefined ? text : `${text}; it ended with: ${words}`;
  };
  if (unit.ExecMainStatus === '78' && unit.ActiveState !== 'active') {
    return failure('service', await words(), 'The configuration cannot work: `tagferry check`.');
  }
  const endsAgain = unit.SubState === 'auto-restart' || (restarts > 0 && runsForSeconds(unit) < SETTLED_S);
  if (endsAgain || unit.ActiveState === 'failed') {
    const often = endsAgain ? 'It ends again and again: mend what it says. ' : '';
    return failure('service', await words(), `${often}See \`journalctl -u tagferry -n 50\`.`);
  }
  if (restarts > 0) {
    return warning('service', await words(), 'See `journalctl -u tagferry -p warning` for why it ended.');
  }
  return ok('service', text);
}

/** Since the last start of its process; by the running time of the machine, as systemd counts it. */
function runsForSeconds(unit: Record<string, string>): number {
  const startedUs = Number(unit.ExecMainStartTimestampMonotonic ?? Number.NaN);
  if (!(startedUs > 0)) return Number.POSITIVE_INFINITY;
  return uptime() - startedUs / 1e6;
}

async function journalLines(): Promise<CheckLine[]> {
  const args = ['-u', UNIT, '-p', 'err', '--since', '-1d', '-o', 'cat', '-n', String(MAX_ERRORS), '--no-pager', '-q'];
  const text = await outputOf('journalctl', args);
  if (text === undefined) return [];
  const errors = text.split('\n').filter((line) => line.trim() !== '');
  if (errors.length === 0) return [ok('journal', 'no errors in the log of the last day')];
  const last = plain(lastWords(errors.at(-1)!)).slice(0, 200);
  const many = errors.length >= MAX_ERRORS ? `${MAX_ERRORS} or more errors` : counted(errors.length, 'error');
  return [
    warning('journal', `${many} in the last day; the last: ${last}`, '`journalctl -u tagferry -p err --since -1d`'),
  ];
}

/** The event and message of a log line of ours; another line as it is. */
function lastWords(line: string): string {
  try {
    const { event, msg, error } = JSON.parse(line) as Record<string, unknown>;
    return [event, msg, error].filter((part) => typeof part === 'string').join(': ');
  } catch {
    return line;
  }
}
