import { counted, durationText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Configuration } from '../../config/configuration.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { journalState } from '../logs/journal.ts';
import { readLine } from '../logs/log-line.ts';
import { outputOf } from '../service/service-folder.ts';
import { restartsOf, type ServiceCondition, UNIT } from '../service/service-unit.ts';
import { type CheckLine, type DoctorContext, failure, ok, warning } from './context.ts';

const MAX_ERRORS = 200;

/** Checks the agent and its service: whether the agent responds, the unit state, and errors of the past day. */
export async function checkService(context: DoctorContext): Promise<CheckLine[]> {
  const { agent, agentError, place, service } = context;
  const lines: CheckLine[] = [];
  if (agent) lines.push(agentLine(agent));
  else if (agentError !== undefined) {
    lines.push(warning('daemon', plain(agentError.text), plain(agentError.next)));
  } else if (!service) {
    const next = `Start the agent: \`tagferry run --config ${place.directory}\`.`;
    lines.push(warning('daemon', `no agent responds at ${place.socket}`, next));
  }
  if (!service) return lines;
  const line = serviceLine(service, context);
  lines.push(line, ...checkServiceMemory(service.unit, context.configuration));
  // The unit state already explains the errors.
  return line.state === 'failure' ? lines : [...lines, ...(await journalLines())];
}

function agentLine(agent: NonNullable<DoctorContext['agent']>): CheckLine {
  const up = `up ${durationText(agent.uptime_seconds)}`;
  const text = `tagferry ${agent.version} responds: ${agent.state}, ${up}, ${counted(agent.buffer.values, 'value')} in the buffer`;
  const problems = agent.buffer.problems.map(plain).join('; ');
  if (problems !== '')
    return failure('daemon', `${text}: ${problems}`, 'Free up space for STATE_DIR, or check its disk.');
  if (agent.state === 'online') return ok('daemon', text);
  return warning('daemon', text, 'Run `tagferry status`.');
}

function serviceLine(service: ServiceCondition, { agent, agentError, place }: DoctorContext): CheckLine {
  const { state, message, next, unit } = service;
  const responds = agent !== undefined || agentError !== undefined;
  if (state === 'active' && !responds) {
    return failure('service', `${message}, but no agent responds at ${place.socket}`, next);
  }
  if (state === 'active' || (state === 'starting' && responds)) return upLine(service);
  const error = service.failure ? `; latest error: ${service.failure.text}` : '';
  const byHand = agent && unit.MainPID === '0' ? '; the agent that responds was started manually' : '';
  if (byHand !== '' || state === 'starting' || state === 'stopping') {
    return warning('service', `${message}${error}${byHand}`, next);
  }
  return failure('service', `${message}${error}`, next);
}

/** Returns the result for an active unit: whether it starts at the next boot, and whether it failed before. */
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
  if (errors.length === 0) return [ok('journal', 'no errors in the log in the last 24 hours')];
  const { event, msg, error } = readLine(errors.at(-1)!);
  const latest = [event, msg, error].filter((part) => typeof part === 'string').join(': ');
  const many = errors.length >= MAX_ERRORS ? `${MAX_ERRORS} or more errors` : counted(errors.length, 'error');
  const message = `${many} in the last 24 hours; latest: ${plain(latest).slice(0, 200)}`;
  return [warning('journal', message, 'See `journalctl -u tagferry -p err --since -1d`.')];
}

/** Memory required if sources or reactions run other programs. `systemd/examples/bounds.conf` covers only the agent. */
const FOR_COMMANDS_BYTES = 300 * 2 ** 20;
const MIB = 2 ** 20;
const WITH_PROGRAM = new Set(SOURCE_KINDS.filter(({ runsProgram }) => runsProgram).map(({ kind }) => kind));

/** Checks the service's memory limit, which programs run by sources and reactions share with the agent. */
function checkServiceMemory(
  unit: Readonly<Record<string, string>>,
  configuration: Configuration | undefined,
): CheckLine[] {
  // If there is no limit, systemd reports `infinity`.
  const bounds = [unit.MemoryMax, unit.MemoryHigh].map(Number).filter((bytes) => bytes > 0 && Number.isFinite(bytes));
  if (bounds.length === 0) return [];
  const bound = Math.min(...bounds);
  const text = `service memory limit: ${Math.round(bound / MIB)} MiB`;
  const commands = configuration ? commandsOf(configuration) : [];
  if (bound >= FOR_COMMANDS_BYTES || commands.length === 0) return [ok('memory', text)];
  return [
    warning(
      'memory',
      `${text}, shared with other programs: ${commands.slice(0, 3).join(', ')}${commands.length > 3 ? ' and others' : ''}`,
      "Use /usr/share/doc/tagferry/examples/bounds-with-commands.conf instead of bounds.conf, and add the programs' memory to its limits.",
    ),
  ];
}

function commandsOf({ tags, reactions }: Configuration): string[] {
  const sources = [...tags.sources.values()]
    .filter(({ kind }) => WITH_PROGRAM.has(kind))
    .map(({ name }) => `source ${name}`);
  const runs = reactions.filter(({ actions }) => actions.some(({ kind }) => kind === 'run'));
  return [...sources, ...runs.map(({ name }) => `reaction ${name}`)];
}
