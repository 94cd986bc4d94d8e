/** Reads status reports of many gateways from files in folders and from operations listeners. */
import { open, readdir } from 'node:fs/promises';
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';
import { basename, join } from 'node:path';
import { codeOf, messageOf, UsageError } from '../../base/errors.ts';
import { request as requestHttp } from '../../base/node-http.ts';
import { Redactor } from '../../base/redactor.ts';
import type { ReadGateway } from './lines.ts';

/** Maximum size of a status report, which is usually a few kilobytes. */
const MAX_BYTES = 4 * 1024 * 1024;
const TIMEOUT_MS = 10_000;
const CONCURRENCY = 16;

interface Place {
  gateway: string;
  read(): Promise<string>;
}

/** Yields each gateway once. Throws `UsageError` for an invalid folder or address. */
export async function* readGateways(places: readonly string[], token: string | undefined): AsyncGenerator<ReadGateway> {
  const all = (await Promise.all(places.map((place) => gatewaysAt(place, token)))).flat();
  for (let from = 0; from < all.length; from += CONCURRENCY) {
    yield* await Promise.all(all.slice(from, from + CONCURRENCY).map(readOne));
  }
}

async function readOne({ gateway, read }: Place): Promise<ReadGateway> {
  try {
    return { gateway, status: JSON.parse(await read()) };
  } catch (error) {
    return { gateway, unread: error instanceof SyntaxError ? 'not JSON' : (codeOf(error) ?? messageOf(error)) };
  }
}

async function gatewaysAt(place: string, token: string | undefined): Promise<Place[]> {
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(place)) return [gatewayByAddress(place, token)];
  try {
    const names = (await readdir(place)).filter((name) => name.endsWith('.json') && !name.startsWith('.')).sort();
    if (names.length === 0)
      throw new UsageError(`${place} contains no *.json files`, 'Store the output of `tagferry status --json` there.');
    return names.map((name) => ({ gateway: basename(name, '.json'), read: () => readBounded(join(place, name)) }));
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(
      `cannot read ${place} (${codeOf(error) ?? messageOf(error)})`,
      'Specify a folder, or an address such as http://gateway:8472.',
    );
  }
}

async function readBounded(file: string): Promise<string> {
  const handle = await open(file);
  try {
    if ((await handle.stat()).size > MAX_BYTES) throw new Error('larger than 4 MiB');
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}

/** Appends `/status` unless the address already has a path. */
function gatewayByAddress(text: string, token: string | undefined): Place {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new UsageError(`"${text}" is not an http or https address`, 'Use an address such as http://gateway:8472.');
  }
  if (url.username !== '' || url.password !== '') {
    throw new UsageError(
      'an address contains a user name or password',
      'Use --token-file, because all users can see the command line.',
    );
  }
  if (url.pathname === '/') url.pathname = '/status';
  const secrets = new Redactor();
  secrets.learn(token);
  return { gateway: url.host, read: async () => secrets.redact(await get(url, token)) };
}

async function get(url: URL, token: string | undefined): Promise<string> {
  const options: RequestOptions = {
    headers: { accept: 'application/json', ...(token === undefined ? {} : { authorization: `Bearer ${token}` }) },
    agent: false,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  };
  const send: (onResponse: (response: IncomingMessage) => void) => ClientRequest =
    url.protocol === 'https:'
      ? (onResponse) => process.getBuiltinModule('node:https').request(url, options, onResponse)
      : (onResponse) => requestHttp(url, options, onResponse);
  return new Promise((resolve, reject) => {
    const outgoing = send((response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        chunks.push(chunk);
        if (bytes > MAX_BYTES) response.destroy(new Error('response larger than 4 MiB'));
      });
      response.on('end', () => {
        if (response.statusCode === 200) resolve(Buffer.concat(chunks).toString('utf8'));
        else reject(new Error(statusText(response.statusCode ?? 0)));
      });
      response.on('error', reject);
    });
    outgoing.on('error', (error) => reject(error.name === 'TimeoutError' ? new Error('no response') : error));
    outgoing.end();
  });
}

function statusText(status: number): string {
  if (status === 401 || status === 403) return `status ${status}, requires OPS_TOKEN (--token-file)`;
  if (status === 421) return 'status 421, host name not allowed (OPS_HOSTS)';
  return `status ${status}`;
}
