import type { Command } from 'commander';
import { UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import type { RequestEntry } from '../http/request-entry.ts';
import { DEFAULT_WITHIN_MS } from '../requests/expectation.ts';
import { type AdminClient, adminVerb, asAdmin } from './admin-client.ts';
import { wholeNumber } from './cause-verb.ts';
import { duration } from './fault-verbs.ts';

interface MatchFlags {
  method?: string;
  path?: string;
  asset?: string;
  status?: string;
  after?: string;
}

/** Adds the verbs `requests` and `expect`. */
export function addRequestVerbs(sandbox: Command): void {
  const requests = matchingFlags(adminVerb(sandbox.command('requests')))
    .description('list the latest requests of clients, or one with headers and bodies')
    .argument('[id]', 'one of them whole, with headers and bodies; secrets are masked')
    .option('--limit <n>', 'so many', '20')
    .option('--whole', 'all of them whole, as JSON')
    .addHelpText('after', REQUESTS_EXAMPLES);
  requests.action((id: string | undefined, flags: MatchFlags & { limit: string; whole?: true }) =>
    asAdmin(requests, (client, show) => showRequests(client, show, id, flags)),
  );

  const expect = matchingFlags(adminVerb(sandbox.command('expect')))
    .description('wait until a client has sent this; exit with 1 where it does not in time')
    .option('--key <key>', 'with a value of this key')
    .option('--body <json>', 'members that its JSON body has')
    .option('--times <n>', 'so many at least', '1')
    .option('--within <duration>', 'how long to wait', `${DEFAULT_WITHIN_MS / 1000}s`)
    .option('--never', 'that none comes within that time')
    .addHelpText('after', EXPECT_EXAMPLES);
  expect.action((flags: MatchFlags & ExpectFlags) =>
    asAdmin(expect, async (client, show) => {
      const expectation = expectationOf(flags);
      const patienceMs = expectation.withinMs + 10_000;
      const { requests } = await client.send<{ requests: RequestEntry[] }>(
        'POST',
        'expectations',
        expectation,
        patienceMs,
      );
      show(requests.length === 0 ? 'None came.' : listText(requests), requests);
    }),
  );
}

const REQUESTS_EXAMPLES = `
Examples:
  tagferry sandbox requests --asset 881
  tagferry sandbox requests 17
  tagferry sandbox requests --path "/v1/*" --whole`;

const EXPECT_EXAMPLES = `
Examples:
  tagferry sandbox expect --method POST --asset 881 --within 5s
  tagferry sandbox expect --asset 881 --key flow --times 3
  tagferry sandbox expect --path "/v1/permissions*" --never --within 30s`;

interface ExpectFlags {
  key?: string;
  body?: string;
  times: string;
  within: string;
  never?: true;
}

function matchingFlags(command: Command): Command {
  return command
    .option('--method <method>', 'only these')
    .option('--path <path>', 'only this path, or its beginning with * at the end')
    .option('--asset <id>', 'only requests about this asset')
    .option('--status <status>', 'only what was answered so; 0 is a broken connection')
    .option('--after <id>', 'only requests after this one');
}

function matchOf(flags: MatchFlags): Record<string, string | number> {
  const match: Record<string, string | number> = {};
  if (flags.method !== undefined) match.method = flags.method.toUpperCase();
  if (flags.path !== undefined) match.path = flags.path;
  for (const name of ['asset', 'status', 'after'] as const) {
    const text = flags[name];
    if (text !== undefined) match[name] = wholeNumber(`--${name}`, text);
  }
  return match;
}

function expectationOf(flags: MatchFlags & ExpectFlags) {
  if (flags.key !== undefined && flags.body !== undefined) throw new UsageError('--key and --body say two things');
  const body = flags.key === undefined ? jsonOf(flags.body) : { values: [{ key: flags.key }] };
  return {
    ...matchOf(flags),
    ...(body === undefined ? {} : { body }),
    ...(flags.never === true ? { never: true } : { times: wholeNumber('--times', flags.times) }),
    withinMs: duration('--within', flags.within),
  };
}

function jsonOf(text: string | undefined): unknown {
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    throw new UsageError(`--body ${text} is no JSON`, 'Write for example --body \'{"values":[{"key":"flow"}]}\'.');
  }
}

async function showRequests(
  client: AdminClient,
  show: (text: string, data: unknown) => void,
  id: string | undefined,
  flags: MatchFlags & { limit: string; whole?: true },
): Promise<void> {
  if (id !== undefined) {
    const one = await client.get(`requests/${wholeNumber('requests', id)}`);
    return show(JSON.stringify(one, null, 2), one);
  }
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(matchOf(flags))) query.set(name, String(value));
  // A list that is cut for the eye, and not what a file is to hold.
  if (flags.whole !== true || flags.limit !== '20') query.set('limit', String(wholeNumber('--limit', flags.limit)));
  if (flags.whole === true) query.set('whole', 'true');
  const { requests } = await client.get<{ requests: RequestEntry[] }>(`requests?${query}`);
  show(flags.whole === true ? JSON.stringify(requests, null, 2) : listText(requests), requests);
}

function listText(requests: readonly RequestEntry[]): string {
  if (requests.length === 0) return 'No request came.';
  const rows = requests.map(({ id, at, method, path, status, user, story, refused }) => [
    String(id),
    at.slice(11, 23),
    method,
    plain(path),
    status === 0 ? 'none' : String(status),
    plain(user ?? '-'),
    plain(refused ?? story ?? ''),
  ]);
  return table([['id', 'time', 'method', 'path', 'answer', 'user', 'what'], ...rows]);
}
