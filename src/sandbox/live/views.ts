import { PERMISSION_TYPES } from '../../contract/permissions.ts';
import type { PermitableRef } from '../permissions/inheritance.ts';
import type { Stage } from '../stage.ts';
import type {
  Allowed,
  ChartFrame,
  DeliveryLine,
  SandboxEvents,
  SeriesLine,
  SiteView,
  WebhookLine,
} from './sandbox-events.ts';

/** Maximum number of objects that a page shows, because a seed may contain thousands. */
const MAX_OBJECTS = 1_000;
const MAX_LINES = 50;

/** Objects and their permissions. */
export function siteOf(stage: Stage): SiteView {
  const { site } = stage;
  const allowed = (on: PermitableRef) =>
    Object.fromEntries(PERMISSION_TYPES.map((type) => [type, [...stage.permissions.usersWho(type, on)]])) as Allowed &
      object;
  const assets = site.all('assets');
  const instrumentations = site.all('instrumentations');
  return {
    users: site
      .all('users')
      .slice(0, MAX_LINES)
      .map(({ id, name, email, technical }) => ({ id, name: name ?? email, isTechnical: technical === true })),
    assets: assets.slice(0, MAX_OBJECTS).map(({ id, serial_number, description = '' }) => ({
      id,
      serial: serial_number,
      description,
      allowed: allowed({ type: 'Asset', id }),
    })),
    instrumentations: instrumentations.slice(0, MAX_OBJECTS).map(({ id, tag, assets: of }) => ({
      id,
      tag,
      assets: of,
      allowed: allowed({ type: 'Instrumentation', id }),
    })),
    units: Object.fromEntries(site.all('units').map(({ code, symbol }) => [code, symbol])),
    unshown: Math.max(0, assets.length - MAX_OBJECTS) + Math.max(0, instrumentations.length - MAX_OBJECTS),
  };
}

export function seriesLine({ values }: Stage, asset: number, key: string): SeriesLine {
  const last = values.last(asset, key);
  return {
    asset,
    key,
    received: values.counts(asset, key).received,
    last: last && { timestampMs: last.timestampMs, value: last.value, unit: last.unit },
  };
}

export function chartOf(stage: Stage, asset: number, key: string): ChartFrame {
  return { asset, key, thresholds: stage.thresholds.on(asset, key, stage.values.last(asset, key)?.unit) };
}

export function tokensOf({ tokens, site }: Stage): SandboxEvents['tokens'] {
  const { alive, last } = tokens.alive(MAX_LINES);
  const lines = last.map(({ fingerprint, user, grant, expiresMs }) => {
    const record = site.get('users', user);
    return { fingerprint, user: record?.name ?? record?.email ?? '', grant, expiresMs };
  });
  return { alive, lines };
}

export function webhooksOf(stage: Stage): WebhookLine[] {
  return stage
    .webhooks()
    .slice(-MAX_LINES)
    .map(({ id, url, event_types, disabled }) => ({ id, url, eventTypes: event_types, isDisabled: disabled }));
}

/** Latest deliveries, newest first. */
export function deliveriesOf(stage: Stage): DeliveryLine[] {
  return stage
    .deliveries()
    .slice(-MAX_LINES)
    .reverse()
    .map(({ id, webhook, eventType, createdMs, status, attempts, lastAnswer, nextMs }) => ({
      ...{ id, webhook, eventType, createdMs, status, attempts, lastAnswer, nextMs },
    }));
}
