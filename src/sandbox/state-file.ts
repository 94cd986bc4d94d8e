import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { messageOf, StoreError } from '../base/errors.ts';
import type { Usage } from './http/usage.ts';
import type { CodeRegistry } from './identity/code-registry.ts';
import type { LabelRegistry } from './labels/label-endpoints.ts';
import type { PermissionRegistry } from './permissions/permission-registry.ts';
import type { SandboxClock } from './sandbox-clock.ts';
import { withoutKey } from './site/api-keys.ts';
import { KINDS, type Notice, type Owner } from './site/records.ts';
import type { SiteModel } from './site/site-model.ts';
import type { TokenStore } from './tokens/token-store.ts';
import type { ThresholdWatch } from './values/threshold-watch.ts';
import type { ValueLedger } from './values/value-ledger.ts';
import type { WebhookRegistry } from './webhooks/webhook-registry.ts';

export interface KeptParts {
  clock: SandboxClock;
  site: SiteModel;
  permissions: PermissionRegistry;
  owners: Owner[];
  labels: LabelRegistry;
  tokens: TokenStore;
  codes: CodeRegistry;
  values: ValueLedger;
  webhookRegistry: WebhookRegistry;
  usage: Usage;
  notices: Notice[];
  thresholds: ThresholdWatch;
}

const VERSION = 1;

/**
 * Everything that a sandbox knows, in one JSON file (not what a run is told to do: faults, outages, limits, lives of tokens), written whole to a temporary file, synced and renamed: a crash
 * leaves the old state or the new one. The sandbox's time never goes back: it goes on from the saved time if that is
 * ahead of the machine's.
 */
export function writeState(file: string, parts: KeptParts): void {
  const state = {
    version: VERSION,
    wallMs: parts.clock.wallMs(),
    site: parts.site.snapshot(),
    blocks: parts.permissions.blocks(),
    owners: parts.owners,
    labels: [...parts.labels],
    tokens: parts.tokens.snapshot(),
    codes: parts.codes.snapshot(),
    values: parts.values.snapshot(),
    webhooks: parts.webhookRegistry.snapshot(),
    usage: parts.usage.snapshot(),
    notices: parts.notices,
    beyond: parts.thresholds.snapshot(),
  };
  const temporary = `${file}.tmp`;
  // Tokens and webhook secrets are in it.
  const descriptor = openSync(temporary, 'w', 0o600);
  try {
    writeFileSync(descriptor, JSON.stringify(state));
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  renameSync(temporary, file);
}

/** A state of before API keys were records of their own holds them in the applications. */
function keysOfBefore(site: SiteModel): void {
  for (const written of site.all('client_applications')) {
    const { application, key } = withoutKey(written);
    site.put('client_applications', application);
    if (key) site.put('api_keys', key);
  }
}

/** Puts back what `writeState` wrote, in place of the seed; `false` where there is no file. Throws `StoreError` for one that cannot be read. */
export function readState(file: string, parts: KeptParts): boolean {
  if (!existsSync(file)) return false;
  try {
    const state = JSON.parse(readFileSync(file, 'utf8'));
    if (state.version !== VERSION) throw new Error(`it has version ${state.version}, not ${VERSION}`);
    const aheadMs = state.wallMs - parts.clock.wallMs();
    if (aheadMs > 0) parts.clock.advance(aheadMs);
    for (const kind of KINDS) {
      for (const { id } of parts.site.all(kind)) parts.site.delete(kind, id);
      for (const record of state.site[kind] ?? []) parts.site.put(kind, record);
    }
    keysOfBefore(parts.site);
    parts.permissions.restoreBlocks(state.blocks);
    parts.owners.splice(0, parts.owners.length, ...state.owners);
    for (const [place, labels] of state.labels) parts.labels.set(place, labels);
    parts.tokens.restore(state.tokens);
    parts.values.restore(state.values);
    parts.webhookRegistry.restore(state.webhooks);
    // Not in the states of before.
    parts.codes.restore(state.codes ?? []);
    parts.usage.restore(state.usage ?? []);
    parts.notices.push(...(state.notices ?? []));
    parts.thresholds.restore(state.beyond ?? []);
    return true;
  } catch (error) {
    throw new StoreError(`the state ${file} cannot be read: ${messageOf(error)}`, {
      code: 'sandbox.state_unreadable',
      hint: 'Move the file away to begin anew from the seed.',
    });
  }
}
