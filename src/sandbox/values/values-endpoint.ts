import { counted } from '../../base/amounts.ts';
import { MAX_BODY_BYTES, type ValuesBody } from '../../contract/values.ts';
import { type Answer, type Call, idParam, jsonBody, page, timeQuery } from '../http/call.ts';

import { Refusal, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Stage } from '../stage.ts';
import type { StoredValue } from './value-ledger.ts';
import { type PostedSeries, readValuesBody } from './values-body.ts';

/** Adds the endpoints for values. The specification does not show endpoints for reading values. */
export function addValuesEndpoints(router: Router, stage: Stage): void {
  router.add('POST', '/v1/assets/:id/values', (call) => postValues(call, stage));
  router.add('GET', '/v1/assets/:id/values', (call) => listLatest(call, stage));
  router.add('GET', '/v1/assets/:id/values/:key', (call) => listKey(call, stage));
}

/**
 * Accepts a post of values (platform 10.2). Responds 204 without a body, or 413 if the body exceeds 500 kB. Requires
 * `can_update` on the asset (platform 2.2).
 */
function postValues(call: Call, stage: Stage): Answer {
  const id = idParam(call, 'id');
  stage.permissions.require(call.caller.user, 'can_update', { type: 'Asset', id });
  if (call.raw.length > MAX_BODY_BYTES) throw refusal(413, `the body is larger than ${MAX_BODY_BYTES} bytes`);
  const { series, problems } = readValuesBody(jsonBody(call) as ValuesBody, stage.site, stage.clock.wallMs());
  if (problems.length > 0 && stage.options.invalidValues !== 'drop') {
    const errors = problems.map(({ attribute, message }) => ({ type: 'invalid', message, attribute }));
    throw new Refusal(400, { errors });
  }
  const refused = stage.faults.rejectionOf(id, series);
  if (refused) throw refusal(refused.status, `a value for ${refused.key} is rejected`, 'values');
  stage.arrival.accept(id, series);
  return { status: 204, story: storyOf(series, stage.site, id) };
}

function storyOf(series: readonly PostedSeries[], site: SiteModel, asset: number): string {
  const values = series.reduce((sum, one) => sum + one.points.length, 0);
  const [first] = site.holdersOf('instrumentations', asset);
  const name = first?.tag ?? site.get('assets', asset)?.serial_number ?? String(asset);
  return `${counted(values, 'value')} for ${name} (${series
    .map((one) => one.key)
    .join(', ')
    .slice(0, 80)})`;
}

function mustRead(call: Call, stage: Stage, id: number): void {
  stage.permissions.require(call.caller.user, 'can_read', { type: 'Asset', id });
}

function listLatest(call: Call, stage: Stage): Answer {
  const id = idParam(call, 'id');
  mustRead(call, stage, id);
  const latest = stage.values
    .series()
    .filter((series) => series.asset === id)
    .map(({ key }) => ({ key, ...shown(stage.values.last(id, key)!) }));
  const { items, pagination } = page(call, latest);
  return { status: 200, body: { values: items, pagination }, story: `latest values of asset ${id} read` };
}

function listKey(call: Call, stage: Stage): Answer {
  const id = idParam(call, 'id');
  mustRead(call, stage, id);
  const fromMs = timeQuery(call, 'from') ?? Number.NEGATIVE_INFINITY;
  const toMs = timeQuery(call, 'to') ?? Number.POSITIVE_INFINITY;
  const values = stage.values
    .list(id, call.params.key ?? '')
    .filter((value) => value.timestampMs >= fromMs && value.timestampMs <= toMs);
  const { items, pagination } = page(call, values);
  const story = `${counted(items.length, 'value')} of ${call.params.key?.slice(0, 80)} of asset ${id} read`;
  return { status: 200, body: { data: items.map(shown), pagination }, story };
}

function shown(value: StoredValue) {
  return {
    timestamp: new Date(value.timestampMs).toISOString(),
    value: value.value,
    ...(value.status === undefined ? {} : { status: value.status }),
    ...(value.simulated === undefined ? {} : { simulated: value.simulated }),
    ...(value.hold === undefined ? {} : { hold: value.hold }),
    ...(value.group === undefined ? {} : { group: value.group }),
    ...(value.unit === undefined ? {} : { unit: { code: value.unit } }),
  };
}
