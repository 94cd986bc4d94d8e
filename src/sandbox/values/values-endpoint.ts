import { counted } from '../../base/amounts.ts';
import { MAX_BODY_BYTES, type ValuesBody } from '../../contract/values.ts';
import { type Answer, type Call, idParam, jsonBody } from '../http/call.ts';
import { page } from '../http/paging.ts';
import { errorBody, Refusal, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { PermissionRegistry } from '../permissions/permission-registry.ts';
import { mustMay } from '../permissions/permitted.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { ValueArrival } from './value-arrival.ts';
import type { StoredValue, ValueLedger } from './value-ledger.ts';
import { type PostedSeries, readTimestamp, readValuesBody } from './values-body.ts';

export interface ValuesContext {
  site: SiteModel;
  registry: PermissionRegistry;
  ledger: ValueLedger;
  arrival: ValueArrival;
  clock: SandboxClock;
  /** A fault's say: refuses a body before it is looked at. Throws a `Refusal`. */
  examine(asset: number, posted: readonly PostedSeries[]): void;
  /** `drop`: like the platform, 204 and what is not valid vanishes in silence. */
  invalidValues: 'refuse' | 'drop';
}

/** Values in and back out. Reading is "not shown" in the spec; its form here is the sandbox's own. */
export function addValuesEndpoints(router: Router, context: ValuesContext): void {
  router.add('POST', '/v1/assets/:id/values', (call) => postValues(call, context));
  router.add('GET', '/v1/assets/:id/values', (call) => listLatest(call, context));
  router.add('GET', '/v1/assets/:id/values/:key', (call) => listKey(call, context));
}

/** platform 10.2: 204 without a body; 413 over 500 kB; wants `can_update` on the asset (platform 2.2). */
function postValues(call: Call, context: ValuesContext): Answer {
  const id = idParam(call, 'id');
  mustMay(context.registry, context.site, call.caller.user, 'can_update', { type: 'Asset', id });
  if (call.raw.length > MAX_BODY_BYTES) throw refusal(413, `the body is larger than ${MAX_BODY_BYTES} bytes`);
  const { series, problems } = readValuesBody(jsonBody(call) as ValuesBody, context.site, context.clock.wallMs());
  if (problems.length > 0 && context.invalidValues === 'refuse') {
    const errors = problems.map(({ attribute, message }) => ({ type: 'invalid', message, attribute }));
    throw new Refusal(400, { errors });
  }
  context.examine(id, series);
  context.arrival.take(id, series);
  return { status: 204, story: storyOf(series, context.site, id) };
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

function mustRead(call: Call, context: ValuesContext, id: number): void {
  mustMay(context.registry, context.site, call.caller.user, 'can_read', { type: 'Asset', id });
}

function listLatest(call: Call, context: ValuesContext): Answer {
  const id = idParam(call, 'id');
  mustRead(call, context, id);
  const latest = context.ledger
    .series()
    .filter((series) => series.asset === id)
    .map(({ key }) => ({ key, ...shown(context.ledger.last(id, key)!) }));
  const { items, pagination } = page(call, latest);
  return { status: 200, body: { values: items, pagination }, story: `the last values of asset ${id} are read` };
}

function listKey(call: Call, context: ValuesContext): Answer {
  const id = idParam(call, 'id');
  mustRead(call, context, id);
  const fromMs = time(call, 'from') ?? Number.NEGATIVE_INFINITY;
  const toMs = time(call, 'to') ?? Number.POSITIVE_INFINITY;
  const values = context.ledger
    .list(id, call.params.key ?? '')
    .filter((value) => value.timestampMs >= fromMs && value.timestampMs <= toMs);
  const { items, pagination } = page(call, values);
  const story = `${counted(items.length, 'value')} of ${call.params.key?.slice(0, 80)} of asset ${id} read`;
  return { status: 200, body: { data: items.map(shown), pagination }, story };
}

function time(call: Call, name: string): number | undefined {
  const text = call.query.get(name);
  if (text === null) return undefined;
  const ms = readTimestamp(text);
  if (ms === undefined) throw new Refusal(400, errorBody(400, 'is no ISO 8601 time', name));
  return ms;
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
