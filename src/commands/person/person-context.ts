import type { Command } from 'commander';
import { type Clock, plausibleWallMs } from '../../base/clock.ts';
import { ConfigurationError, codeOf, PlatformError, UsageError } from '../../base/errors.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { version } from '../../base/installation.ts';
import { silentLogger } from '../../base/logger.ts';
import { Redactor } from '../../base/redactor.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import { problemLine } from '../../config/problem.ts';
import { DEPRECATIONS, type DeprecatedArea, requireBeforeSunset } from '../../contract/deprecations.ts';
import type { TokenSource } from '../../platform/client.ts';
import { PlatformClient } from '../../platform/client.ts';
import { createDispatcher } from '../../platform/dispatcher.ts';
import type { PersonClient } from '../../platform/grants.ts';
import { HttpBoundary, type HttpRequest, type PlatformAnswer } from '../../platform/http-boundary.ts';
import { CallRefusal } from '../../platform/response-meanings.ts';
import { confirmChange } from '../terminal/input.ts';
import { PersonFile, type SignInFlow } from './person-file.ts';
import { PersonTokens } from './person-tokens.ts';

/** Options of all commands that act as a user. */
export interface PersonFlags {
  as: string;
  json?: boolean;
  dryRun?: boolean;
  yes?: boolean;
  v1?: boolean;
}

/** A request below {base_url}, shown before it is sent. */
interface ShownRequest {
  method: string;
  path: string;
  body: object;
}

/** Dependencies of a command that acts as a user. */
export interface PersonContext {
  settings: PersonSettings;
  boundary: HttpBoundary;
  tokens: PersonTokens;
  file: PersonFile;
  /** Client for read requests. */
  reader: PlatformClient;
  /** Client for changes, which are only recorded with `--dry-run`. */
  writer: PlatformClient;
  clock: Clock;
  isDryRun: boolean;
  /**
   * Prints the request, if given, and asks for confirmation. With `--dry-run`, returns true without asking, because
   * nothing is sent.
   */
  confirm(question: string, request?: ShownRequest): Promise<boolean>;
  /** Prints the result: a sentence, or `facts` as JSON. With `--dry-run`, prints the requests. */
  done(sentence: string, facts: object): void;
  /** Prints text, or data as JSON. */
  show(text: string, data: unknown): void;
}

/** One connection for the current page of a listing, and one for the next page. */
const CONNECTIONS = 2;

/** Adds `--as`, `--json` and `--no-json`. */
export function personVerb(command: Command): Command {
  return command
    .option('--as <name>', 'name of the sign-in, if several people share this account', 'me')
    .option('--json', 'print JSON (default if standard output is not a terminal)')
    .option('--no-json', 'print text even if standard output is not a terminal');
}

/** Adds `--dry-run` and the options of `personVerb`. */
export function changingVerb(command: Command): Command {
  return personVerb(command).option('--dry-run', 'print the requests without sending those that change anything');
}

/** Description of `--v1`. */
export const V1 = 'use the deprecated v1 API with user numbers, and print its sunset date';

/** Adds an `ls` command that fails with a hint, for objects that the API cannot list. */
export function addUnlistable(group: Command, what: string, argument: string, example: string, hint: string): void {
  group
    .command('ls')
    .alias('list')
    .description(`not supported: the platform has no call to list ${what}`)
    .argument(argument, example)
    .allowUnknownOption()
    .action(() => {
      throw new PlatformError(`the platform has no call to list ${what}`, { code: 'platform.no_such_call', hint });
    });
}

/** Runs a command as a user and closes its sockets. */
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
    isDryRun: dryRun !== undefined,
    async confirm(question, request) {
      if (dryRun) return true;
      if (request) process.stderr.write(`${requestText({ ...request, url: settings.platformUrl + request.path })}\n`);
      return confirmChange(question, flags.yes);
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
    throw withSignInHint(error);
  } finally {
    await boundary.close();
  }
}

/** Replaces the hint for a rejected token, which otherwise refers to the technical user. */
function withSignInHint(error: unknown): unknown {
  if (!(error instanceof CallRefusal) || error.status !== 401) return error;
  const hint = 'The platform rejected this sign-in. Sign in again with `tagferry login`.';
  return new PlatformError(error.message, { code: error.code, retryable: error.retryable, hint, cause: error });
}

function plannedText({ requests }: DryRun): string {
  return [...requests.map(requestText), 'Nothing was sent (--dry-run).'].join('\n');
}

function requestText({ method, url, body }: PlannedRequest): string {
  return [`${method} ${url}`, ...(body === undefined ? [] : [jsonText(body)])].join('\n');
}

interface PlannedRequest {
  method: string;
  url: string;
  body?: unknown;
}

/** Replaces the network: records requests and returns responses as if they had been sent. */
class DryRun {
  readonly requests: PlannedRequest[] = [];

  async send(request: HttpRequest): Promise<PlatformAnswer> {
    const { method, url, body } = request;
    const text = typeof body === 'string' ? body : undefined;
    this.requests.push({ method, url: url.href, ...(text === undefined ? {} : { body: JSON.parse(text) }) });
    return { status: 204, header: () => undefined, text: '', redact: String };
  }

  /** The token is never sent, so no sign-in is required. */
  readonly tokens: TokenSource = {
    lease: async () => ({
      accessToken: 'none',
      responded: () => undefined,
      release: () => undefined,
    }),
  };
}

/**
 * Warns on standard error that `--v1` is deprecated and when support ends (platform 9). From the sunset date on, throws
 * `platform.sunset` with the v2 form of the same command. Throws `platform.sunset_unknown` if the clock is not set.
 */
export function warnOfDeprecation(area: DeprecatedArea, v2Command: string, clock: Clock): void {
  const deprecation = DEPRECATIONS.find((one) => one.area === area);
  if (deprecation === undefined) return;
  const { since, sunset, reason, instead } = deprecation;
  requireBeforeSunset(deprecation, plausibleWallMs(clock), `${v2Command}\n(${instead})`);
  process.stderr.write(
    `tagferry: v1 of ${area} has been deprecated since ${since} and will be removed on ${sunset}: ${reason}.\nUse v2: ${v2Command}\n`,
  );
}

/** Settings in agent.env for commands that act as a user. Credentials of the technical user are not read. */
export interface PersonSettings {
  directory: string;
  platformUrl: string;
  identityUrl: string;
  clientId: string;
  /** `undefined` if not configured or not readable by this user. */
  clientSecret: string | undefined;
  pkceChallenge: 'base64url' | 'base64' | undefined;
  apiKeyHeader: string | undefined;
  /** PEM text of PLATFORM_CA. */
  caPem: string | undefined;
  httpsProxy: string | undefined;
  noProxy: string | undefined;
}

/** Only problems with these settings are reported. */
const NEEDED = /\b(PLATFORM_URL|IDENTITY_URL|CLIENT_ID|PLATFORM_CA|HTTPS_PROXY|API_KEY_HEADER)\b|agent\.env.*the file /;

/** Reads these settings and ignores problems with the others. Throws `ConfigurationError` if they are invalid. */
function personSettings(program: Command, environment: NodeJS.ProcessEnv): PersonSettings {
  const directory = configurationDirectory(program.opts<{ config?: string }>().config, environment);
  const { settings, problems } = readSettingsLeniently({ directory, environment });
  const { platformUrl, identityUrl, clientId } = settings;
  const errors = problems.filter((one) => one.severity === 'error').map(problemLine);
  const relevant = errors.filter((line) => NEEDED.test(line));
  if (platformUrl === undefined || identityUrl === undefined || clientId === undefined) {
    throw new ConfigurationError(relevant.length > 0 ? relevant : errors);
  }
  return {
    directory,
    platformUrl,
    identityUrl,
    clientId,
    clientSecret: settings.clientSecret,
    pkceChallenge: settings.pkceChallenge,
    apiKeyHeader: settings.apiKeyHeader,
    caPem: settings.platformCa === undefined ? undefined : caText(settings.platformCa),
    httpsProxy: settings.httpsProxy,
    noProxy: settings.noProxy,
  };
}

/**
 * Returns PKCE unless a client secret is configured (docs/interface.md). `asked` is the option that overrides the
 * default.
 */
export function flowOf(settings: PersonSettings, asked: SignInFlow | undefined): SignInFlow {
  if (asked === 'web' && settings.clientSecret === undefined) {
    throw new UsageError(
      'the web flow requires CLIENT_SECRET',
      'Set CLIENT_SECRET, or omit --web-flow to sign in with PKCE.',
    );
  }
  return asked ?? (settings.clientSecret === undefined ? 'pkce' : 'web');
}

/** Returns the client credentials for a flow. Throws `UsageError` if the required secret is no longer available. */
export function clientOf(settings: PersonSettings, flow: SignInFlow): PersonClient {
  if (flow === 'pkce') return { clientId: settings.clientId, challengeEncoding: settings.pkceChallenge };
  if (settings.clientSecret === undefined) {
    throw new UsageError(
      'this sign-in used CLIENT_SECRET, which is no longer available',
      'Set CLIENT_SECRET, or sign in again with `tagferry login --pkce`.',
    );
  }
  return { clientId: settings.clientId, clientSecret: settings.clientSecret };
}

function caText(path: string): string {
  try {
    return readRegularFileSync(path).bytes.toString();
  } catch (error) {
    throw new ConfigurationError([
      `PLATFORM_CA: cannot read ${path} (${codeOf(error)}), specify a PEM file that this user can read`,
    ]);
  }
}
