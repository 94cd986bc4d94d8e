import type { EventType } from '../../contract/events.ts';
import { KEY_PATTERN } from '../../contract/values.ts';
import { refusal } from '../http/refusal.ts';
import type { Unit } from '../site/records.ts';
import type { Stage } from '../stage.ts';
import { type Cause, chosen, type ResolvedRequest } from './cause.ts';

const TAKES = ['key', 'value', 'unit'] as const;

/** Posts single values with the sandbox's current time, as if the technical user had posted them. */
export const VALUE_CAUSES = {
  asset_value_created: { object: 'assets', takes: TAKES, trigger: postToAsset },
  asset_values_created: { object: 'assets', takes: TAKES, trigger: postToAsset },
  instrumentation_values_created: { object: 'instrumentations', takes: TAKES, trigger: postToInstrumentation },
  threshold_reached: { object: 'instrumentations', takes: TAKES, trigger: reachThreshold },
} satisfies Partial<Record<EventType, Cause>>;

function postToInstrumentation(stage: Stage, request: ResolvedRequest): number {
  const { id, assets } = instrumentationOf(stage, request);
  post(stage, assets[0]!, request);
  return id;
}

function postToAsset(stage: Stage, request: ResolvedRequest): number {
  const hasTag = (id: number) => stage.site.all('instrumentations').some((one) => one.assets.includes(id));
  const { id } = chosen(stage, 'assets', request.object, (asset) => hasTag(asset.id));
  post(stage, id, request);
  return id;
}

function instrumentationOf(stage: Stage, request: ResolvedRequest) {
  const one = chosen(stage, 'instrumentations', request.object, ({ assets }) => assets.length > 0);
  if (one.assets.length === 0) throw refusal(409, `instrumentation ${one.id} has no asset for a value`);
  return one;
}

/**
 * Posts a value within the threshold and then a value beyond it, because the event is sent when the threshold is
 * crossed.
 */
function reachThreshold(stage: Stage, request: ResolvedRequest): number {
  const { id, tag, assets } = instrumentationOf(stage, request);
  const own = stage.site.all('thresholds').find((one) => {
    return one.thresholdable_type === 'Instrumentation' && one.thresholdable_id === id && one.type !== 'deviation';
  });
  const key = keyOf(own?.key === undefined ? request : { key: own.key, ...request });
  const threshold =
    own ??
    stage.site.found(
      'thresholds',
      stage.setThreshold({ instrumentation: id, type: 'high', value: 20, key, name: `${tag} high` }),
    );
  const sign = threshold.type === 'low' ? -1 : 1;
  const unit = { unit: request.unit ?? threshold.unit };
  const at = (value: number) => ({ key, value, ...(unit.unit === undefined ? {} : { unit: unit.unit }) });
  post(stage, assets[0]!, at(threshold.value - sign * margin(threshold.value)));
  const beyond =
    request.value === undefined ? threshold.value + sign * margin(threshold.value) : numberOf(request.value);
  // Advance the clock by one millisecond, because a value with the same timestamp would replace the first value.
  post(stage, assets[0]!, at(beyond), 1);
  return id;
}

function margin(value: number): number {
  return Math.max(1, Math.abs(value) / 10);
}

function post(stage: Stage, asset: number, request: ResolvedRequest, laterMs = 0): void {
  const key = keyOf(request);
  const last = stage.values.last(asset, key)?.value ?? 0;
  const value = request.value === undefined ? Math.round((last + 1) * 1000) / 1000 : numberOf(request.value);
  const unit = unitOf(stage, request.unit);
  stage.acceptValues(asset, [
    {
      key,
      group: undefined,
      unit,
      points: [{ timestampMs: stage.clock.wallMs() + laterMs, value, status: undefined, stamped: true }],
    },
  ]);
  stage.report(`posted to asset ${asset}: ${key} = ${value}${unit === undefined ? '' : ` ${unit.symbol}`}`);
}

function keyOf(request: ResolvedRequest): string {
  const key = request.key ?? 'flow';
  if (typeof key !== 'string' || !KEY_PATTERN.test(key)) throw refusal(400, 'must be a value key', 'key');
  return key.toLowerCase();
}

function numberOf(value: number | string): number {
  const number = Number(value);
  if (value === '' || !Number.isFinite(number)) throw refusal(400, 'must be a number', 'value');
  return number;
}

function unitOf(stage: Stage, code: string | undefined): Unit | undefined {
  if (code === undefined) return undefined;
  const unit = stage.site.unitByCode(code);
  if (!unit) throw refusal(409, `no unit ${code.slice(0, 60)}`);
  return unit;
}
