import type { Command } from 'commander';
import type { Clock } from '../../base/clock.ts';
import { PlatformError } from '../../base/errors.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { version } from '../../base/installation.ts';
import { silentLogger } from '../../base/logger.ts';
import { Redactor } from '../../base/redactor.ts';
import { CallRefusal } from '../../platform/call-refusal.ts';
import { PlatformClient } from '../../platform/client.ts';
import { createDispatcher } from '../../platform/dispatcher.ts';
import { HttpBoundary } from '../../platform/http-boundary.ts';
import { confirm } from '../asking.ts';
import { DryRun, type PlannedRequest } from './dry-run.ts';
import { PersonFile } from './person-file.ts';
import { clientOf, type PersonSettings, personSettings } from './person-settings.ts';
import { PersonTokens } from './person-tokens.ts';

/** Options that people's verbs share. */
export interface PersonFlags {
  as: string;
  json?: boolean;
  dryRun?: boolean;
  yes?: boolean;
  v1?: boolean;
}

/** A request below {base_url} that is shown before it is sent. */
interface ShownRequest {
  method: string;
  path: string;
  body: object;
}

/** What a verb works with while it runs. */
export interface PersonContext {
  settings: PersonSettings;
  boundary: HttpBoundary;
  tokens: PersonTokens;
  file: PersonFile;
  /** Asks the platform in a person's name. */
  reader: PlatformClient;
  /** Changes things in a person's name, or with `--dry-run` only says what it would send. */
  writer: PlatformClient;
  clock: Clock;
  isDry: boolean;
  /** Prints the request, if given, and asks for confirmation. Always true with `--dry-run`, which sends nothing. */
  sure(question: string, request?: ShownRequest): Promise<boolean>;
  /** Says what was done: the sentence on a terminal, the facts as JSON elsewhere; with `--dry-run` the requests instead. */
  done(sentence: string, facts: object): void;
  /** Rows for people, the data for programs. */
  show(text: string, data: unknown): void;
}

/** One at a time is enough for a person, and two for a page read ahead. */
const CONNECTIONS = 2;

/** Adds `--as`, `--json` and `--no-json`. */
export function personVerb(command: Command): Command {
  return command
    .option('--as <name>', 'whose sign-in, where several people share an account', 'me')
    .option('--json', 'print JSON: the default where standard output is no terminal')
    .option('--no-json', 'print text, also where standard output is no terminal');
}

/** Adds what changes have in common. */
export function changingVerb(command: Command): Command {
  return personVerb(command).option(
    '--dry-run',
    'print the requests that would be made, and make none that changes anything',
  );
}

/** Runs a verb in a person's name and closes the sockets behind it. */
export async function inPersonContext(
  program: Command,
  flags: PersonFlags,
  clock: Clock,
  act: (context: PersonContext) => Promise<void>,
): Promise<void> {
  const settings = personSettings(program, process.env);
  const redactor = new Redactor();
  redactor.configure([settings.clientSecret, settings.httpsProxy]);
  const boundary = new HttpBoundary({
    sockets: createDispatcher({
      connections: CONNECTIONS,
      caPem: settings.caPem,
      httpsProxy: settings.httpsProxy,
      noProxy: settings.noProxy,
    }),
    clock,
    redactor,
    userAgent: `tagferry/${version()}`,
  });
  const file = new PersonFile(process.env, settings, flags.as, clock);
  const { identityUrl } = settings;
  const tokens = new PersonTokens({ file, boundary, identityUrl, client: (flow) => clientOf(settings, flow), clock });
  const dryRun = flags.dryRun ? new DryRun() : undefined;
  const asJson = flags.json ?? !process.stdout.isTTY;
  const shared = {
    baseUrl: settings.platformUrl,
    apiKey: settings.apiKeyHeader ? { header: settings.apiKeyHeader, clientId: settings.clientId } : undefined,
    clock,
    log: silentLogger(),
  };
  const show = (text: string, data: unknown) => void process.stdout.write(`${asJson ? jsonText(data) : text}\n`);
  const context: PersonContext = {
    settings,
    boundary,
    tokens,
    file,
    reader: new PlatformClient({ ...shared, boundary, tokens }),
    writer: new PlatformClient({ ...shared, boundary: dryRun ?? boundary, tokens: dryRun?.tokens ?? tokens }),
    clock,
    isDry: dryRun !== undefined,
    async sure(question, request) {
      if (dryRun) return true;
      if (request) process.stderr.write(`${requestText({ ...request, url: settings.platformUrl + request.path })}\n`);
      if (await confirm(question, flags.yes)) return true;
      process.stderr.write('Nothing was changed.\n');
      process.exitCode = 1;
      return false;
    },
    done(sentence, facts) {
      if (dryRun) show(plannedText(dryRun), { dry_run: true, requests: dryRun.requests });
      else show(sentence, { done: true, ...facts });
    },
    show,
  };
  try {
    await act(context);
  } catch (error) {
    throw inPersonsWords(error);
  } finally {
    await boundary.close();
  }
}

/** A refused token is the technical session's business elsewhere; here it is this person's sign-in. */
function inPersonsWords(error: unknown): unknown {
  if (!(error instanceof CallRefusal) || error.status !== 401) return error;
  const hint = 'The platform does not take this sign-in: sign in again with tagferry login';
  return new PlatformError(error.message, { code: error.code, retryable: error.retryable, hint, cause: error });
}

function plannedText({ requests }: DryRun): string {
  return [...requests.map(requestText), 'Nothing was sent: --dry-run.'].join('\n');
}

function requestText({ method, url, body }: PlannedRequest): string {
  return [`${method} ${url}`, ...(body === undefined ? [] : [jsonText(body)])].join('\n');
}
