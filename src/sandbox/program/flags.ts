import { readFileSync } from 'node:fs';
import { messageOf, UsageError } from '../../base/errors.ts';
import { readListenAddress } from '../../base/listen-address.ts';
import type { Sandbox, SandboxOptions } from '../sandbox.ts';
import { readSeedFile } from '../seed/seed-file.ts';
import { STRICT_RULE_NAMES } from '../strictness.ts';
import { readTimestamp } from '../values/values-body.ts';
import { assume } from './assumptions.ts';
import { duration } from './fault-verbs.ts';

export interface SandboxFlags {
  listen: string;
  adminPort?: string;
  identityPort?: string;
  now?: string;
  cors?: string;
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
  away?: string;
  expireEvery?: string;
  webhookCa?: string;
  strict?: boolean;
  assume: string[];
  keys: boolean;
  quiet?: boolean;
  json?: boolean;
}

/** The flags of `tagferry sandbox` as options. Throws `UsageError` for what cannot be understood. */
export function optionsOf(flags: SandboxFlags): SandboxOptions {
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
  if (flags.identityPort !== undefined) options.identityPort = numberOf('--identity-port', flags.identityPort);
  if (flags.now !== undefined) options.nowMs = timeOf(flags.now);
  if (flags.cors !== undefined) options.corsOrigin = flags.cors;
  if (flags.seed !== undefined) options.seed = readSeedFile(flags.seed);
  if (flags.state !== undefined) options.stateFile = flags.state;
  if (flags.tokenLife !== undefined) options.accessTokenLifeS = numberOf('--token-life', flags.tokenLife, 1);
  if (flags.perMinute !== undefined) {
    const perUser = numberOf('--per-minute', flags.perMinute);
    options.limits = perUser === 0 ? { perUser: 0, perApiKey: 0, perAddress: 0 } : { perUser };
  }
  if (flags.dropInvalid) options.invalidValues = 'drop';
  if (flags.webhookCa !== undefined) options.webhookCa = readPem(flags.webhookCa);
  // What --assume says comes on top.
  if (flags.strict) options.strict = STRICT_RULE_NAMES;
  assume(options, flags.assume);
  return options;
}

/** Faults from the start; those that come by the clock run on the caller's, not on the sandbox's. */
export function addFaults(sandbox: Sandbox, flags: SandboxFlags): void {
  if (flags.latency !== undefined) sandbox.faults.add({ latencyMs: numberOf('--latency', flags.latency) });
  if (flags.failEvery !== undefined) {
    const status = numberOf('--fail-status', flags.failStatus, 200);
    sandbox.faults.add({ path: '/v*', every: numberOf('--fail-every', flags.failEvery, 1), status });
  }
  if (flags.dropEvery !== undefined) {
    sandbox.faults.add({ path: '/v*', every: numberOf('--drop-every', flags.dropEvery, 1), drop: 'after' });
  }
  if (flags.away !== undefined) {
    const [every, span] = flags.away.split('/');
    const everyMs = duration('--away', every ?? '');
    const awayMs = duration('--away', span ?? '');
    if (awayMs === 0 || awayMs >= everyMs) {
      throw new UsageError(
        `--away ${flags.away} is never there`,
        'Write for example --away 5m/30s: each 5 minutes for 30 s.',
      );
    }
    again(sandbox, everyMs, async () => {
      await sandbox.goOffline();
      sandbox.later(awayMs, () => sandbox.goOnline());
    });
  }
  if (flags.expireEvery !== undefined) {
    again(sandbox, Math.max(1, duration('--expire-every', flags.expireEvery)), async () => {
      sandbox.tokens.expireAll(true);
      sandbox.report('every access token and refresh token expires');
    });
  }
}

function again(sandbox: Sandbox, everyMs: number, act: () => Promise<void>): void {
  sandbox.later(everyMs, async () => {
    again(sandbox, everyMs, act);
    await act();
  });
}

function readPem(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`--webhook-ca ${file} cannot be read: ${messageOf(error)}`);
  }
}

function timeOf(text: string): number {
  const ms = readTimestamp(text);
  if (ms === undefined)
    throw new UsageError(`--now ${text} is no time`, 'Write for example --now 2027-02-28T23:59:00Z.');
  return ms;
}

function numberOf(flag: string, text: string, min = 0): number {
  const value = Number(text);
  if (!Number.isFinite(value) || text.trim() === '' || value < min) {
    throw new UsageError(`${flag} ${text} is not a number that fits`);
  }
  return value;
}
