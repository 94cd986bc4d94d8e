import { readFileSync } from 'node:fs';
import { messageOf, UsageError } from '../../base/errors.ts';
import { readListenAddress } from '../../base/listen-address.ts';
import { readTimestamp } from '../http/call.ts';
import type { Sandbox, SandboxOptions } from '../sandbox.ts';
import { readSeedFile } from '../seed/seed.ts';
import { STRICT_RULE_NAMES } from '../strictness.ts';
import { duration } from './admin-client.ts';

export interface SandboxFlags {
  listen: string;
  adminPort?: string;
  identityPort?: string;
  now?: string;
  seed?: string;
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
  quiet?: boolean;
  json?: boolean;
}

/** Converts the flags of `tagferry sandbox` to options. Throws `UsageError` for an invalid flag. */
export function optionsOf(flags: SandboxFlags): SandboxOptions {
  const address = readListenAddress(flags.listen);
  if (!('value' in address) || address.value === undefined || 'path' in address.value) {
    throw new UsageError(`--listen ${flags.listen} must be host:port`, 'Use a value such as --listen 127.0.0.1:8480.');
  }
  if (flags.values !== 'all' && flags.values !== 'count') throw new UsageError('--values must be all or count');
  const perUser = numberOf('--per-minute', flags.perMinute);
  const limits = perUser === 0 ? { perUser, perApiKey: 0, perAddress: 0 } : { perUser };
  return {
    host: address.value.host,
    port: address.value.port,
    speed: numberOf('--speed', flags.speed, Number.MIN_VALUE) ?? 1,
    values: flags.values,
    rotateRefreshTokens: flags.rotation,
    ...present({ adminPort: numberOf('--admin-port', flags.adminPort) }),
    ...present({ identityPort: numberOf('--identity-port', flags.identityPort) }),
    ...present({ nowMs: flags.now === undefined ? undefined : timeOf(flags.now) }),
    ...present({ seed: flags.seed === undefined ? undefined : readSeedFile(flags.seed) }),
    ...present({ accessTokenLifeS: numberOf('--token-life', flags.tokenLife, 1) }),
    ...(perUser === undefined ? {} : { limits: limits as { perUser: number } }),
    ...present({ webhookCa: flags.webhookCa === undefined ? undefined : readPem(flags.webhookCa) }),
    ...(flags.dropInvalid ? { invalidValues: 'drop' } : {}),
    ...(flags.strict ? { strict: STRICT_RULE_NAMES } : {}),
  };
}

/** Adds the faults specified by flags. Periods are in real time. */
export function addFaults(sandbox: Sandbox, flags: SandboxFlags): void {
  const latencyMs = numberOf('--latency', flags.latency);
  if (latencyMs !== undefined) sandbox.faults.add({ latencyMs });
  const failEvery = numberOf('--fail-every', flags.failEvery, 1);
  const status = numberOf('--fail-status', flags.failStatus, 200);
  if (failEvery !== undefined) sandbox.faults.add({ path: '/v*', every: failEvery, ...present({ status }) });
  const dropEvery = numberOf('--drop-every', flags.dropEvery, 1);
  if (dropEvery !== undefined) sandbox.faults.add({ path: '/v*', every: dropEvery, drop: 'after' });
  if (flags.away !== undefined) {
    const [everyMs = 0, awayMs = 0] = flags.away.split('/').map((text) => duration('--away', text));
    if (awayMs === 0 || awayMs >= everyMs) {
      const hint = 'Use a value such as --away 5m/30s: unavailable for 30 s every 5 minutes.';
      throw new UsageError(`--away ${flags.away} is not valid`, hint);
    }
    repeat(sandbox, everyMs, async () => {
      await sandbox.goOffline();
      sandbox.later(awayMs, () => sandbox.goOnline());
    });
  }
  if (flags.expireEvery !== undefined) {
    repeat(sandbox, Math.max(1, duration('--expire-every', flags.expireEvery)), async () => {
      sandbox.tokens.expireAll(true);
      sandbox.report('all access tokens and refresh tokens expired');
    });
  }
}

function repeat(sandbox: Sandbox, everyMs: number, act: () => Promise<void>): void {
  sandbox.later(everyMs, async () => {
    repeat(sandbox, everyMs, act);
    await act();
  });
}

function readPem(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`cannot read --webhook-ca ${file}: ${messageOf(error)}`);
  }
}

function timeOf(text: string): number {
  const ms = readTimestamp(text);
  if (ms !== undefined) return ms;
  throw new UsageError(`--now ${text} is not an ISO 8601 time`, 'Use a value such as --now 2027-02-28T23:59:00Z.');
}

function numberOf(flag: string, text: string | undefined, min = 0): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (Number.isFinite(value) && text.trim() !== '' && value >= min) return value;
  throw new UsageError(`${flag} must be at least ${min}, not ${text}`);
}

type Present<T> = { [N in keyof T]?: Exclude<T[N], undefined> };

/** Returns a copy of the object without undefined members. */
function present<T extends object>(object: T): Present<T> {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as Present<T>;
}
