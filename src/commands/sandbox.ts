import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { readListenAddress } from '../config/listen-address.ts';
import { messageOf, TagferryError, UsageError } from '../errors.ts';
import { createLogger } from '../logger.ts';
import { type RequestEntry, SANDBOX_CREDENTIALS, Sandbox, type SandboxOptions } from '../sandbox/sandbox.ts';
import { readSeedFile } from '../sandbox/seed/seed-file.ts';

interface Flags {
  listen: string;
  adminPort?: string;
  seed?: string;
  state?: string;
  speed: string;
  values: 'all' | 'count';
  tokenLife?: string;
  rotation: boolean;
  perMinute?: string;
  dropInvalid?: boolean;
  latency?: string;
  failEvery?: string;
  failStatus: string;
  dropEvery?: string;
  webhookCa?: string;
  quiet?: boolean;
  json?: boolean;
}

/** Adds `tagferry sandbox`: the platform as far as the spec describes it, on this machine. */
export function define(program: Command): void {
  program
    .command('sandbox')
    .description('the platform itself as far as the spec describes it, on this machine')
    .option('--listen <host:port>', 'where it listens', '127.0.0.1:8480')
    .option('--admin-port <port>', 'a second address for /sandbox/… that stays when the platform goes offline')
    .option('--seed <file>', 'YAML of plant, users and credentials (default: a small plant)')
    .option('--state <file>', 'keep the state in this file from run to run')
    .option('--speed <n>', 'seconds of the sandbox in one second', '1')
    .option('--values <all|count>', 'keep every value, or only counts', 'all')
    .option('--token-life <seconds>', 'life of an access token (660)')
    .option('--no-rotation', 'a refresh answers with the same refresh token')
    .option('--per-minute <n>', 'requests a minute for a user before 429 (500); 0 is none')
    .option('--drop-invalid', 'values that are not valid vanish behind a 204 instead of a 400')
    .option('--latency <ms>', 'wait before each answer')
    .option('--fail-every <n>', 'each n-th API call is answered --fail-status')
    .option('--fail-status <status>', 'with --fail-every', '503')
    .option('--drop-every <n>', 'each n-th API call is done, but its answer is lost')
    .option('--webhook-ca <file>', 'PEM of an authority that webhook receivers are signed by')
    .option('--quiet', 'no request log')
    .option('--json', 'the request log as JSON lines')
    .addHelpText('after', `\n${credentialsText()}`)
    .action((flags: Flags) => run(flags));
}

async function run(flags: Flags): Promise<void> {
  const sandbox = new Sandbox({ ...optionsOf(flags), log: createLogger({ level: 'warn', format: 'auto', fd: 2 }) });
  addFaults(sandbox, flags);
  try {
    await sandbox.start();
  } catch (error) {
    if (error instanceof TagferryError) throw error;
    throw new TagferryError(`cannot listen on ${flags.listen}: ${messageOf(error)}`, {
      code: 'sandbox.listen_failed',
      hint: 'Choose another address with --listen.',
      cause: error,
    });
  }
  if (!flags.quiet) followStory(sandbox, flags.json === true);
  if (flags.json) print({ event: 'sandbox.listening', url: sandbox.url, adminUrl: sandbox.adminUrl });
  else process.stdout.write(`${greeting(sandbox, flags)}\n`);
  await untilSignal();
  await sandbox.stop();
}

function optionsOf(flags: Flags): SandboxOptions {
  const address = readListenAddress(flags.listen);
  if (!('value' in address) || address.value === undefined || 'path' in address.value) {
    throw new UsageError(`--listen ${flags.listen} is not host:port`, 'Write for example --listen 127.0.0.1:8480.');
  }
  if (flags.values !== 'all' && flags.values !== 'count') throw new UsageError('--values is all or count');
  const options: SandboxOptions = {
    host: address.value.host,
    port: address.value.port,
    speed: numberOf('--speed', flags.speed, Number.MIN_VALUE),
    values: flags.values,
    rotateRefreshTokens: flags.rotation,
  };
  if (flags.adminPort !== undefined) options.adminPort = numberOf('--admin-port', flags.adminPort);
  if (flags.seed !== undefined) options.seed = readSeedFile(flags.seed);
  if (flags.state !== undefined) options.stateFile = flags.state;
  if (flags.tokenLife !== undefined) options.accessTokenLifeS = numberOf('--token-life', flags.tokenLife, 1);
  if (flags.perMinute !== undefined) {
    const perUser = numberOf('--per-minute', flags.perMinute);
    options.limits = perUser === 0 ? { perUser: 0, perApiKey: 0, perAddress: 0 } : { perUser };
  }
  if (flags.dropInvalid) options.invalidValues = 'drop';
  if (flags.webhookCa !== undefined) options.webhookCa = readFileSync(flags.webhookCa, 'utf8');
  return options;
}

function addFaults(sandbox: Sandbox, flags: Flags): void {
  if (flags.latency !== undefined) sandbox.faults.add({ latencyMs: numberOf('--latency', flags.latency) });
  if (flags.failEvery !== undefined) {
    const status = numberOf('--fail-status', flags.failStatus, 200);
    sandbox.faults.add({ path: '/v*', every: numberOf('--fail-every', flags.failEvery, 1), status });
  }
  if (flags.dropEvery !== undefined) {
    sandbox.faults.add({ path: '/v*', every: numberOf('--drop-every', flags.dropEvery, 1), drop: 'after' });
  }
}

function numberOf(flag: string, text: string, least = 0): number {
  const value = Number(text);
  if (!Number.isFinite(value) || text.trim() === '' || value < least) {
    throw new UsageError(`${flag} ${text} is not a number that fits`);
  }
  return value;
}

function credentialsText(): string {
  return `Credentials of the default seed (they protect nothing):
  CLIENT_ID=${SANDBOX_CREDENTIALS.clientId}  CLIENT_SECRET=${SANDBOX_CREDENTIALS.clientSecret}
  TECHNICAL_USERNAME=${SANDBOX_CREDENTIALS.technicalUsername}  TECHNICAL_PASSWORD=${SANDBOX_CREDENTIALS.technicalPassword}
  CLIENT_APPLICATION=${SANDBOX_CREDENTIALS.clientApplication}
  people: ${SANDBOX_CREDENTIALS.userEmail} with ${SANDBOX_CREDENTIALS.userPassword}`;
}

function greeting(sandbox: Sandbox, flags: Flags): string {
  const credentials = flags.seed === undefined ? `\n${credentialsText()}` : `\nCredentials: those of ${flags.seed}.`;
  return `The sandbox listens: PLATFORM_URL=${sandbox.url}${credentials}
Behind the scenes: ${sandbox.adminUrl}/sandbox/status. Stop with Ctrl-C.`;
}

/** One line a request and a delivery: when, who, what happened, how it was answered. */
function followStory(sandbox: Sandbox, asJson: boolean): void {
  sandbox.requests.onRequest((entry) => {
    if (asJson) print({ event: 'sandbox.request', ...entry });
    else process.stdout.write(`${entry.at.slice(11, 19)}  ${requestLine(entry)}\n`);
  });
  sandbox.onDelivery(({ delivery, webhook, answer, nextInMs }) => {
    const at = new Date(sandbox.clock.wallMs()).toISOString();
    const { id, eventType, attempts, status } = delivery;
    if (asJson) {
      print({ event: 'sandbox.delivery', at, id, eventType, attempts, status, webhook: webhook.id, answer, nextInMs });
      return;
    }
    const next = nextInMs === undefined ? '' : `, again in ${Math.round(nextInMs / 1000)} s`;
    process.stdout.write(
      `${at.slice(11, 19)}  ${eventType} is sent to webhook ${webhook.id}, attempt ${attempts}: ${answer}${next}\n`,
    );
  });
}

function requestLine(entry: RequestEntry): string {
  const who = entry.user ?? 'somebody';
  const what = entry.story ?? `${entry.method} ${entry.path}`;
  const answer = entry.status === 0 ? 'no answer' : String(entry.status);
  const fault = entry.fault === undefined ? '' : ` (${entry.fault})`;
  return `${entry.story === undefined || entry.user !== undefined ? `${who}: ` : ''}${what}: ${answer} in ${entry.durationMs} ms${fault}`;
}

function print(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** Until SIGINT or SIGTERM. The interval keeps the process alive while the sandbox is offline and owns no socket. */
function untilSignal(): Promise<void> {
  return new Promise((resolve) => {
    const alive = setInterval(() => {}, 60_000);
    const end = () => {
      clearInterval(alive);
      resolve();
    };
    process.once('SIGINT', end);
    process.once('SIGTERM', end);
  });
}
