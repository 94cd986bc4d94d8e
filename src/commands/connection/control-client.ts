import { accessSync, constants, existsSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { join, resolve } from 'node:path';
import { PassThrough, pipeline, type Readable } from 'node:stream';
import type { Command } from 'commander';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { CONTROL_SERVER, FAILURE_TRAILER, request } from '../../base/node-http.ts';
import { configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import { decommissionMessage } from '../../store/decommission-mark.ts';
import { isServiceFolder } from '../service/service-folder.ts';
import { type ServiceCondition, serviceCondition } from '../service/service-unit.ts';

/**
 * The service's control socket, in its runtime folder. An agent started manually has its socket in its state folder.
 */
const SERVICE_SOCKET = '/run/tagferry/control.sock';

/** Thrown if no agent responds on the control socket. */
export class NoAgentError extends TagferryError {
  /** `undefined` if systemd does not run an agent with this configuration. */
  readonly service: ServiceCondition | undefined;

  constructor(message: string, hint: string, service?: ServiceCondition) {
    super(message, { code: 'daemon.absent', hint });
    this.service = service;
  }
}

/** Locations of the agent's configuration and state. */
export interface AgentAddress {
  stateDir: string;
  socket: string;
  directory: string;
  /** Configuration folder that was specified but does not exist. In that case, the other locations are assumptions. */
  missing?: string;
  /** Whether no file contains the platform address. */
  unconfigured: boolean;
}

/** Returns the agent's locations for the specified options. */
export function agentOf(program: Command): AgentAddress {
  return agentAddress(configOf(program), process.env);
}

/** Returns the value of `--config`. */
export function configOf(program: Command): string | undefined {
  return program.opts<{ config?: string }>().config;
}

/** Returns the configured state folder and its control socket. */
export function agentAddress(config: string | undefined, environment: NodeJS.ProcessEnv): AgentAddress {
  const directory = configurationDirectory(config, environment);
  const { settings, isUntouched } = readSettingsLeniently({ directory, environment });
  const stateDir = resolve(settings.stateDir ?? './state');
  const own = join(stateDir, 'control.sock');
  const isOwnThere = existsSync(own);
  const isServiceThere = existsSync(SERVICE_SOCKET);
  const isLikely = config === undefined || stateDir === '/var/lib/tagferry';
  const isService = isServiceFolder(directory)
    ? isServiceThere || !isOwnThere
    : isLikely && isServiceThere && !isOwnThere;
  const socket = isService ? SERVICE_SOCKET : own;
  const isMissing = !existsSync(directory);
  const missing = config !== undefined && isMissing ? { missing: directory } : {};
  return { stateDir, socket, directory, ...missing, unconfigured: isUntouched && !isMissing };
}

/** Sends a request to the agent. Throws `NoAgentError` if no agent is running, or the agent's error. */
export async function askAgent<Result>(place: AgentAddress, operation: string, params: unknown = {}): Promise<Result> {
  const response = await send(place, operation, params);
  const text = await textOf(response);
  if (response.statusCode !== 200) throw refusal(text);
  return (text === '' ? undefined : JSON.parse(text)) as Result;
}

/** Queries the running agent, or reads the files of a stopped agent. */
export async function orStopped<Result>(
  running: () => Promise<Result>,
  stopped: () => Promise<Result>,
): Promise<Result> {
  try {
    return await running();
  } catch (error) {
    if (!(error instanceof NoAgentError)) throw error;
    return stopped();
  }
}

/** Requests a streamed response from the agent. The stream fails with the error that ended the response early. */
export async function streamFromAgent(place: AgentAddress, operation: string, params: unknown): Promise<Readable> {
  const response = await send(place, operation, params);
  if (response.statusCode !== 200) throw refusal(await textOf(response));
  const checked = new PassThrough({
    flush: (done) => {
      const failure = response.trailers[FAILURE_TRAILER];
      done(failure === undefined ? null : refusal(decodeURIComponent(failure)));
    },
  });
  // An error destroys `checked`, so its reader receives the error.
  pipeline(response, checked, () => {});
  return checked;
}

function refusal(text: string): TagferryError {
  const { message, code, hint } = JSON.parse(text) as { message: string; code: string; hint?: string };
  return new TagferryError(message, { code, hint });
}

function send(place: AgentAddress, operation: string, params: unknown): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const body = JSON.stringify(params);
    const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
    const call = request({ socketPath: place.socket, path: `/${operation}`, method: 'POST', headers }, (response) => {
      if (response.headers.server === CONTROL_SERVER) return resolve(response);
      response.destroy();
      reject(foreign(place));
    });
    call.on('error', (error) => {
      const code = codeOf(error);
      if (code === 'ENOENT' || code === 'ECONNREFUSED') noAgent(place).then(reject, reject);
      else if (code === 'EACCES') reject(notAllowed(place, error));
      else if (code?.startsWith('HPE_')) reject(foreign(place));
      else reject(error);
    });
    call.end(body);
  });
}

async function noAgent(place: AgentAddress): Promise<NoAgentError> {
  const { socket, stateDir, missing } = place;
  const absent = `no agent responds at ${socket}`;
  if (missing) {
    const hint = `The folder ${missing} does not exist. Specify the configuration folder of the agent with --config.`;
    return new NoAgentError(absent, hint);
  }
  const service = await serviceCondition(place);
  if (!service) return new NoAgentError(absent, decommissionMessage(stateDir) ?? startHint(place));
  const failure = service.failure ? `. Latest error: ${service.failure.text}` : '';
  return new NoAgentError(`${absent}: ${service.message}${failure}`, service.next, service);
}

/** Returns the hint for an agent that is not managed by systemd. */
function startHint({ directory, socket }: AgentAddress): string {
  const settings = join(directory, 'agent.env');
  if (existsSync(settings) && !isReadable(settings))
    return `This user cannot read ${settings}, which may set a different STATE_DIR. Use sudo.`;
  const start = `Start the agent (\`tagferry run --config ${directory}\`)`;
  if (socket === SERVICE_SOCKET || !existsSync(SERVICE_SOCKET))
    return `${start}, or specify another folder with --config. If the agent is waiting for its disk, its log contains the reason.`;
  return `${start}, or omit --config: the service responds at ${SERVICE_SOCKET}.`;
}

function isReadable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

function foreign(place: AgentAddress): TagferryError {
  return new TagferryError(`another program is listening on ${place.socket}`, {
    code: 'daemon.foreign',
    hint: `Find it with \`fuser ${place.socket}\` and stop it. The agent recreates the socket within 10 s.`,
  });
}

function notAllowed(place: AgentAddress, cause: unknown): TagferryError {
  return new TagferryError(`cannot connect to ${place.socket}: permission denied`, {
    code: 'daemon.forbidden',
    hint: 'Use sudo, or add the user to the tagferry group.',
    cause,
  });
}

async function textOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}
