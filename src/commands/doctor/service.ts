import { counted, durationText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { journalState } from '../logs/journal.ts';
import { readLine } from '../logs/log-line.ts';
import { outputOf } from '../program-output.ts';
import { restartsOf, type ServiceCondition, UNIT } from '../service-unit.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';
import { checkServiceMemory } from './service-memory.ts';

const MAX_ERRORS = 200;

/** The agent and its service: whether it responds, the state of its unit, the errors of the last day. */
export async function checkService(consultation: Consultation): Promise<CheckLine[]> {
  const { daemon, daemonTrouble, place, service } = consultation;
  const lines: CheckLine[] = [];
  if (daemon) lines.push(daemonLine(daemon));
  else if (daemonTrouble !== undefined) {
    lines.push(warning('daemon', plain(daemonTrouble.text), plain(daemonTrouble.next)));
  } else if (!service) {
    const next = `Start the agent: \`tagferry run --config ${place.directory}\`.`;
    lines.push(warning('daemon', `no agent responds at ${place.socket}`, next));
  }
  if (!service) return lines;
  const line = serviceLine(service, consultation);
  lines.push(line, ...checkServiceMemory(service.unit, consultation.configuration));
  // The state of the unit explains the errors.
  return line.state === 'failure' ? lines : [...lines, ...(await journalLines())];
}

function daemonLine(daemon: NonNullable<Consultation['daemon']>): CheckLine {
  const up = `up ${durationText(daemon.uptime_seconds)}`;
  const text = `tagferry ${daemon.version} responds: ${daemon.state}, ${up}, ${counted(daemon.buffer.values, 'value')} in the buffer`;
  const problems = daemon.buffer.problems.map(plain).join('; ');
  if (problems !== '') return failure('daemon', `${text}: ${problems}`, 'Free space for STATE_DIR, or check its disk.');
  if (daemon.state === 'online') return ok('daemon', text);
  return warning('daemon', text, 'See `tagferry status`, and the lines below.');
}

function serviceLine(service: ServiceCondition, { daemon, daemonTrouble, place }: Consultation): CheckLine {
  const { state, message, next, unit } = service;
  const responds = daemon !== undefined || daemonTrouble !== undefined;
  if (state === 'active' && !responds) {
    return failure('service', `${message}, but no agent responds at ${place.socket}`, next);
  }
  if (state === 'active' || (state === 'starting' && responds)) return upLine(service);
  const error = service.failure ? `; latest error: ${service.failure.text}` : '';
  const byHand = daemon && unit.MainPID === '0' ? '; the agent that responds was started by hand' : '';
  if (byHand !== '' || state === 'starting' || state === 'stopping') {
    return warning('service', `${message}${error}${byHand}`, next);
  }
  return failure('service', `${message}${error}`, next);
}

/** A unit that works now: what happens at the next boot, and whether it failed before. */
function upLine({ message, unit }: ServiceCondition): CheckLine {
  const restarts = restartsOf(unit);
  const text = `${message} (${unit.SubState}), ${counted(restarts, 'restart')}`;
  if (unit.UnitFileState === 'disabled') {
    return warning('service', `${text}, but disabled at boot`, 'Run `sudo systemctl enable tagferry`.');
  }
  return restarts === 0
    ? ok('service', text)
    : warning('service', text, 'See `journalctl -u tagferry -p warning` for the cause.');
}

async function journalLines(): Promise<CheckLine[]> {
  const state = await journalState();
  if (state === 'forbidden' || state === 'absent') return [];
  const args = ['-u', UNIT, '-p', 'err', '--since', '-1d', '-o', 'cat', '-n', String(MAX_ERRORS), '--no-pager', '-q'];
  const text = await outputOf('journalctl', [...args, '-t', 'tagferry']);
  if (text === undefined) return [];
  const errors = text.split('\n').filter((line) => line.trim() !== '');
  if (errors.length === 0) return [ok('journal', 'no errors in the log of the last day')];
  const { event, msg, error } = readLine(errors.at(-1)!);
  const latest = [event, msg, error].filter((part) => typeof part === 'string').join(': ');
  const many = errors.length >= MAX_ERRORS ? `${MAX_ERRORS} or more errors` : counted(errors.length, 'error');
  const message = `${many} in the last day; the latest: ${plain(latest).slice(0, 200)}`;
  return [warning('journal', message, '`journalctl -u tagferry -p err --since -1d`')];
}
