import { type Clock, systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { painter, widthOf, wrapped } from '../../base/table.ts';
import {
  type Configuration,
  checkConfiguration,
  configurationDirectory,
  readSettingsLeniently,
} from '../../config/configuration.ts';
import type { Problem } from '../../config/problem.ts';
import type { ReadSettings } from '../../config/read-settings.ts';
import { AGENT_WAITING } from '../../control/agent-routes.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { ACTION_KINDS } from '../../reactions/actions.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { withoutUnread } from '../configuration/verdict.ts';
import { type AgentAddress, agentAddress, askAgent, NoAgentError } from '../connection/control-client.ts';
import { isMissingSecret, isServiceFolder, serviceEnvironment } from '../service/service-folder.ts';
import { type ServiceCondition, serviceCondition } from '../service/service-unit.ts';
import { isServiceView } from '../service/service-view.ts';

/** Reads the configuration and the agent status. Never throws, because the checks report all problems. */
export async function openDoctorContext(
  config: string | undefined,
  ownEnvironment: NodeJS.ProcessEnv,
  version: string,
  subject: Subject = 'agent',
): Promise<DoctorContext> {
  const directory = configurationDirectory(config, ownEnvironment);
  const environment = serviceEnvironment(directory, ownEnvironment);
  const place = agentAddress(config, environment);
  const isView = isServiceView(environment);
  const { agent, agentError } = subject === 'files' ? NOT_ASKED : await readStatus(place);
  const checked = checkConfiguration({ directory, environment, kinds: SOURCE_KINDS, actions: ACTION_KINDS });
  const isOwn = isServiceFolder(directory) && !isView;
  // A running agent has its secrets, even if this user cannot read them.
  const known = (problem: Problem) => agent === undefined || !isMissingSecret(problem);
  const found = checked.problems.filter(known);
  const { problems, unread } = isOwn ? withoutUnread(found, directory) : { problems: found, unread: [] };
  return {
    subject,
    directory,
    environment,
    clock: systemClock,
    version,
    place,
    settings: readSettingsLeniently({ directory, environment }).settings,
    problems,
    unread,
    configuration: checked.configuration,
    agent,
    agentError,
    service: subject === 'files' || isView ? undefined : await serviceCondition(place),
    isService: isView,
    platformAnswers: false,
  };
}

type Running = Pick<DoctorContext, 'agent' | 'agentError'>;

const NOT_ASKED: Running = { agent: undefined, agentError: undefined };

async function readStatus(place: AgentAddress): Promise<Running> {
  try {
    return { agent: await askAgent<StatusReport>(place, 'status'), agentError: undefined };
  } catch (error) {
    return error instanceof NoAgentError ? NOT_ASKED : { agent: undefined, agentError: agentErrorOf(error) };
  }
}

/**
 * Describes why a running agent returned no status, and what to do. An agent that is waiting during startup reports the
 * reason itself.
 */
function agentErrorOf(error: unknown): NonNullable<DoctorContext['agentError']> {
  const isWaiting = error instanceof TagferryError && error.code === AGENT_WAITING;
  const next = isWaiting ? error.hint : undefined;
  return { text: messageOf(error), next: next ?? 'Use sudo, or add the user to the tagferry group.' };
}

/** Result of a check. Must not contain secrets, because results are sent to support. */
export interface CheckLine {
  /** Stable name of the check. */
  check: string;
  state: 'ok' | 'warning' | 'failure';
  message: string;
  /** Recommended action; empty if the check passed. */
  next: string;
}

export const ok = (check: string, message: string): CheckLine => ({ check, state: 'ok', message, next: '' });
export const warning = (check: string, message: string, next: string): CheckLine => ({
  check,
  state: 'warning',
  message,
  next,
});
export const failure = (check: string, message: string, next: string): CheckLine => ({
  check,
  state: 'failure',
  message,
  next,
});

/** Whether only the files on disk are checked, or the running agent as well. */
export type Subject = 'files' | 'agent';

/** Input for the checks. Earlier checks store results for later ones. */
export interface DoctorContext {
  subject: Subject;
  directory: string;
  environment: NodeJS.ProcessEnv;
  clock: Clock;
  version: string;
  place: AgentAddress;
  settings: ReadSettings;
  problems: readonly Problem[];
  /** Parts of the configuration that this user cannot read. */
  unread: readonly string[];
  configuration: Configuration | undefined;
  /** Status of the running agent; `undefined` if none responds. */
  agent: StatusReport | undefined;
  /** Reason why a running agent returned no status. */
  agentError: { text: string; next: string } | undefined;
  /** The systemd unit; `undefined` if systemd does not run an agent with this configuration. */
  service: ServiceCondition | undefined;
  /** Whether this process runs as the service, with the same access. */
  isService: boolean;
  /** Result of the network check: whether the platform responds over HTTP. */
  platformAnswers: boolean;
}

/** Returns the results of a check. Throws only because of a defect, which `runSteps` reports as a failure. */
export type Check = (context: DoctorContext) => Promise<CheckLine[]> | CheckLine[];

const COLOUR = { ok: 'green', warning: 'yellow', failure: 'red' } as const;
const NAME_WIDTH = 24;

/** Formats a result for a terminal or a pipe. */
export function lineText({ state, check, message, next }: CheckLine): string {
  const paint = painter(process.stdout, process.env);
  const indent = ' '.repeat(9 + NAME_WIDTH);
  // Lines are not wrapped in a pipe, so that grep finds whole messages.
  const width = process.stdout.isTTY ? widthOf(process.stdout) - indent.length : Number.POSITIVE_INFINITY;
  const lines = wrapped(plain(message), width);
  if (next !== '') lines.push(...wrapped(`next: ${next}`, width));
  return `${paint(state.padEnd(8), COLOUR[state])} ${check.padEnd(NAME_WIDTH)}${lines.join(`\n${indent}`)}`;
}
