import { existsSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { join, resolve } from 'node:path';
import { PassThrough, pipeline, type Readable } from 'node:stream';
import { codeOf, TagferryError } from '../base/errors.ts';
import { CONTROL_SERVER, FAILURE_TRAILER, request } from '../base/node-http.ts';
import { configurationDirectory, readSettingsLeniently } from '../config/configuration.ts';
import { decommissionedWords } from '../store/decommission-mark.ts';

/** No daemon answers on the control socket. */
export class NoDaemonError extends TagferryError {}

/** Where a verb looks for the daemon and its state. */
export interface DaemonPlace {
  stateDir: string;
  socket: string;
  /** The configuration folder, where it was named and is not there: the rest is then a guess. */
  missing?: string;
}

/** The state folder of the configuration, and the control socket that answers for it. */
export function daemonPlace(config: string | undefined, environment: NodeJS.ProcessEnv): DaemonPlace {
  const directory = configurationDirectory(config, environment);
  const { settings } = readSettingsLeniently({ directory, environment });
  const stateDir = resolve(settings.stateDir ?? './state');
  const own = join(stateDir, 'control.sock');
  // The service's socket stands in its runtime folder; a daemon that somebody started by hand has it beside its state.
  const service = '/run/tagferry/control.sock';
  const isService = config === undefined || resolve(config) === '/etc/tagferry' || stateDir === '/var/lib/tagferry';
  const socket = !existsSync(own) && isService && existsSync(service) ? service : own;
  return { stateDir, socket, ...(config !== undefined && !existsSync(directory) ? { missing: directory } : {}) };
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
      if (code === 'ENOENT' || code === 'ECONNREFUSED') reject(noDaemon(place));
      else if (code === 'EACCES') reject(notAllowed(place, error));
      else if (code?.startsWith('HPE_')) reject(foreign(place));
      else reject(error);
    });
    call.end(body);
  });
}

function noDaemon(place: DaemonPlace): NoDaemonError {
  return new NoDaemonError(`no daemon answers at ${place.socket}`, {
    code: 'daemon.absent',
    hint: place.missing
      ? `There is no folder ${place.missing}: name the one of the daemon's configuration with --config.`
      : (decommissionedWords(place.stateDir) ??
        'Start it (`systemctl start tagferry`, or `tagferry run`), or name its configuration with --config. ' +
          'Where it runs and waits for its disk, `systemctl status tagferry` says so.'),
  });
}

function foreign(place: DaemonPlace): TagferryError {
  return new TagferryError(`another program answers at ${place.socket}`, {
    code: 'daemon.foreign',
    hint: `Find it with \`fuser ${place.socket}\` and end it. The agent creates the socket again within 10 s.`,
  });
}

function notAllowed(place: DaemonPlace, cause: unknown): TagferryError {
  return new TagferryError(`${place.socket} may not be opened by this user`, {
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
