/** Reads the reports of many gateways: files of folders, and the listeners for operations of those that are named by address. */
import { open, readdir } from 'node:fs/promises';
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';
import { basename, join } from 'node:path';
import { codeOf, messageOf, UsageError } from '../../base/errors.ts';
import { request as requestHttp } from '../../base/node-http.ts';
import { Redactor } from '../../base/redactor.ts';
import type { ReadGateway } from './lines.ts';

/** A status is some kilobytes. */
const MAX_BYTES = 4 * 1024 * 1024;
const PATIENCE_MS = 10_000;
/** Addresses that are asked at one time. */
const AT_ONCE = 16;

interface Place {
  gateway: string;
  read(): Promise<string>;
}

/** Each of them once, in no order. Throws `UsageError` for a place that is none. */
export async function* readGateways(places: readonly string[], token: string | undefined): AsyncGenerator<ReadGateway> {
  const all = (await Promise.all(places.map((place) => gatewaysAt(place, token)))).flat();
  for (let from = 0; from < all.length; from += AT_ONCE) {
    yield* await Promise.all(all.slice(from, from + AT_ONCE).map(readOne));
  }
}

async function readOne({ gateway, read }: Place): Promise<ReadGateway> {
  try {
    return { gateway, status: JSON.parse(await read()) };
  } catch (error) {
    return { gateway, unread: error instanceof SyntaxError ? 'it is no JSON' : (codeOf(error) ?? messageOf(error)) };
  }
}

async function gatewaysAt(place: string, token: string | undefined): Promise<Place[]> {
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(place)) return [gatewayByAddress(place, token)];
  try {
    const names = (await readdir(place)).filter((name) => name.endsWith('.json') && !name.startsWith('.')).sort();
    if (names.length === 0)
      throw new UsageError(`${place} holds no *.json`, 'Put the output of `tagferry status --json` there.');
    return names.map((name) => ({ gateway: basename(name, '.json'), read: () => readBounded(join(place, name)) }));
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(
      `${place} cannot be read (${codeOf(error) ?? messageOf(error)})`,
      'Name a folder, or an address: http://gateway:8472',
    );
  }
}

async function readBounded(file: string): Promise<string> {
  const handle = await open(file);
  try {
    if ((await handle.stat()).size > MAX_BYTES) throw new Error('it is larger than 4 MiB');
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}

/** `/status` unless the address has a path of its own. */
function gatewayByAddress(text: string, token: string | undefined): Place {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new UsageError(`"${text}" is no address of http or https`, 'Write for example http://gateway:8472');
  }
  if (url.username !== '' || url.password !== '') {
    throw new UsageError(
      'an address carries a user name or password',
      'Use --token-file: the command line is seen by all.',
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
    signal: AbortSignal.timeout(PATIENCE_MS),
  };
  const send: (answer: (response: IncomingMessage) => void) => ClientRequest =
    url.protocol === 'https:'
      ? (answer) => process.getBuiltinModule('node:https').request(url, options, answer)
      : (answer) => requestHttp(url, options, answer);
  return new Promise((resolve, reject) => {
    const outgoing = send((response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        chunks.push(chunk);
        if (bytes > MAX_BYTES) response.destroy(new Error('it answers with more than 4 MiB'));
      });
      response.on('end', () => {
        if (response.statusCode === 200) resolve(Buffer.concat(chunks).toString('utf8'));
        else reject(new Error(wordsFor(response.statusCode ?? 0)));
      });
      response.on('error', reject);
    });
    outgoing.on('error', (error) => reject(error.name === 'TimeoutError' ? new Error('it does not answer') : error));
    outgoing.end();
  });
}

function wordsFor(status: number): string {
  if (status === 401 || status === 403) return `status ${status}: it wants its OPS_TOKEN (--token-file)`;
  if (status === 421) return 'status 421: it does not answer to this name (OPS_HOSTS)';
  return `status ${status}`;
}
