import { accessSync, constants, existsSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { join, resolve } from 'node:path';
import { PassThrough, pipeline, type Readable } from 'node:stream';
import { codeOf, TagferryError } from '../base/errors.ts';
import { CONTROL_SERVER, FAILURE_TRAILER, request } from '../base/node-http.ts';
import { configurationDirectory, readSettingsLeniently } from '../config/configuration.ts';
import { decommissionedWords } from '../store/decommission-mark.ts';
import { isServiceFolder } from './service-folder.ts';
import { type ServiceCondition, serviceCondition } from './service-unit.ts';

/** The control socket of the service, in its runtime folder. An agent started by hand has it in its state folder. */
const SERVICE_SOCKET = '/run/tagferry/control.sock';

/** No agent responds on the control socket. */
export class NoDaemonError extends TagferryError {
  /** `undefined` if systemd does not run an agent with this configuration. */
  readonly service: ServiceCondition | undefined;

  constructor(message: string, hint: string, service?: ServiceCondition) {
    super(message, { code: 'daemon.absent', hint });
    this.service = service;
  }
}

/** Where a verb looks for the daemon and its state. */
export interface DaemonPlace {
  stateDir: string;
  socket: string;
  directory: string;
  /** The configuration folder, where it was named and is not there: the rest is then a guess. */
  missing?: string;
  /** No file names the platform, and nothing is written that could be meant as its address. */
  unconfigured: boolean;
}

/** The state folder of the configuration, and the control socket that answers for it. */
export function daemonPlace(config: string | undefined, environment: NodeJS.ProcessEnv): DaemonPlace {
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

/** Asks the daemon; throws `NoDaemonError` where none runs, its own error otherwise. */
export async function askDaemon<Result>(place: DaemonPlace, operation: string, params: unknown = {}): Promise<Result> {
  const response = await send(place, operation, params);
  const text = await textOf(response);
  if (response.statusCode !== 200) throw refusal(text);
  return (text === '' ? undefined : JSON.parse(text)) as Result;
}

/** Asks the agent if one runs, and reads the files of a stopped one otherwise. */
export async function orStopped<Result>(
  running: () => Promise<Result>,
  stopped: () => Promise<Result>,
): Promise<Result> {
  try {
    return await running();
  } catch (error) {
    if (!(error instanceof NoDaemonError)) throw error;
    return stopped();
  }
}

/** Asks the agent for a streamed response. The stream fails with the error that ended the response early. */
export async function streamFromDaemon(place: DaemonPlace, operation: string, params: unknown): Promise<Readable> {
  const response = await send(place, operation, params);
  if (response.statusCode !== 200) throw refusal(await textOf(response));
  const checked = new PassThrough({
    flush: (done) => {
      const failure = response.trailers[FAILURE_TRAILER];
      done(failure === undefined ? null : refusal(decodeURIComponent(failure)));
    },
  });
  // An error destroys `checked`, which its reader sees.
  pipeline(response, checked, () => {});
  return checked;
}

function refusal(text: string): TagferryError {
  const { message, code, hint } = JSON.parse(text) as { message: string; code: string; hint?: string };
  return new TagferryError(message, { code, ...(hint === undefined ? {} : { hint }) });
}

function send(place: DaemonPlace, operation: string, params: unknown): Promise<IncomingMessage> {
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
      if (code === 'ENOENT' || code === 'ECONNREFUSED') noDaemon(place).then(reject, reject);
      else if (code === 'EACCES') reject(notAllowed(place, error));
      else if (code?.startsWith('HPE_')) reject(foreign(place));
      else reject(error);
    });
    call.end(body);
  });
}

async function noDaemon(place: DaemonPlace): Promise<NoDaemonError> {
  const { socket, stateDir, missing } = place;
  const absent = `no agent responds at ${socket}`;
  if (missing) {
    const hint = `The folder ${missing} does not exist. Name the configuration folder of the agent with --config.`;
    return new NoDaemonError(absent, hint);
  }
  const service = await serviceCondition(place);
  if (!service) return new NoDaemonError(absent, decommissionedWords(stateDir) ?? startHint(place));
  const failure = service.failure ? `. Latest error: ${service.failure.text}` : '';
  return new NoDaemonError(`${absent}: ${service.message}${failure}`, service.next, service);
}

/** For an agent that systemd does not start. */
function startHint({ directory, socket }: DaemonPlace): string {
  const settings = join(directory, 'agent.env');
  if (existsSync(settings) && !isReadable(settings))
    return `This user cannot read ${settings}, which can name another state folder. Use sudo.`;
  const start = `Start the agent (\`tagferry run --config ${directory}\`)`;
  if (socket === SERVICE_SOCKET || !existsSync(SERVICE_SOCKET))
    return `${start}, or name another folder with --config. If the agent runs and waits for its disk, its log says so.`;
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

function foreign(place: DaemonPlace): TagferryError {
  return new TagferryError(`another program answers at ${place.socket}`, {
    code: 'daemon.foreign',
    hint: `Find it with \`fuser ${place.socket}\` and end it. The agent creates the socket again within 10 s.`,
  });
}

function notAllowed(place: DaemonPlace, cause: unknown): TagferryError {
  return new TagferryError(`cannot connect to ${place.socket}: permission denied`, {
    code: 'daemon.forbidden',
    hint: 'Use sudo, or add the user to the group tagferry.',
    cause,
  });
}

async function textOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}
