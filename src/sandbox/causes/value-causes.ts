import type { EventType } from '../../contract/events.ts';
import { KEY_PATTERN } from '../../contract/values.ts';
import type { Stage } from '../admin/stage.ts';
import { refusal } from '../http/refusal.ts';
import type { Unit } from '../site/records.ts';
import { type Cause, type EventRequest, first, named, seenOne } from './cause.ts';

const TAKES = ['key', 'value', 'unit'] as const;

/** Values: posted as if the technical user had, one at a time, with the sandbox's time. */
export const VALUE_CAUSES = {
  asset_value_created: {
    does: 'posts a value to an asset',
    object: 'assets',
    takes: TAKES,
    trigger: postToAsset,
  },
  asset_values_created: { does: 'posts a value to an asset', object: 'assets', takes: TAKES, trigger: postToAsset },
  instrumentation_values_created: {
    does: 'posts a value to an asset of the instrumentation',
    object: 'instrumentations',
    takes: TAKES,
    trigger: (stage, request) => {
      const { id, assets } = instrumentationOf(stage, request);
      post(stage, assets[0]!, request);
      return id;
    },
  },
  threshold_reached: {
    does: 'posts a value beyond a threshold of the instrumentation, which gets one where it has none',
    object: 'instrumentations',
    takes: TAKES,
    trigger: reachThreshold,
  },
} satisfies Partial<Record<EventType, Cause>>;

function postToAsset(stage: Stage, request: EventRequest): number {
  const hasTag = (id: number) => stage.site.all('instrumentations').some((one) => one.assets.includes(id));
  const { id } = seenOne(stage, 'assets', request.object, (asset) => hasTag(asset.id));
  post(stage, id, request);
  return id;
}

function instrumentationOf(stage: Stage, request: EventRequest) {
  const one = seenOne(stage, 'instrumentations', request.object, ({ assets }) => assets.length > 0);
  if (one.assets.length === 0) throw refusal(409, `instrumentation ${one.id} has no asset that a value could go to`);
  return one;
}

/** One value beyond, after one within where the last was beyond already: a threshold is told at the crossing. */
function reachThreshold(stage: Stage, request: EventRequest): number {
  const { id, tag, assets } = instrumentationOf(stage, request);
  const own = stage.site.all('thresholds').find((one) => {
    return one.thresholdable_type === 'Instrumentation' && one.thresholdable_id === id && one.type !== 'deviation';
  });
  const key = keyOf(own?.key === undefined ? request : { key: own.key, ...request });
  const threshold =
    own ??
    named(
      stage,
      'thresholds',
      stage.setThreshold({ instrumentation: id, type: 'high', value: 20, key, name: `${tag} high` }),
    );
  const sign = threshold.type === 'low' ? -1 : 1;
  const unit = { unit: request.unit ?? threshold.unit };
  const at = (value: number) => ({ key, value, ...(unit.unit === undefined ? {} : { unit: unit.unit }) });
  post(stage, assets[0]!, at(threshold.value - sign * margin(threshold.value)));
  const beyond =
    request.value === undefined ? threshold.value + sign * margin(threshold.value) : numberOf(request.value);
  // A millisecond later, for the same timestamp again would replace the value.
  post(stage, assets[0]!, at(beyond), 1);
  return id;
}

function margin(value: number): number {
  return Math.max(1, Math.abs(value) / 10);
}

function post(stage: Stage, asset: number, request: EventRequest, laterMs = 0): void {
  const key = keyOf(request);
  const last = stage.values.last(asset, key)?.value ?? 0;
  const value = request.value === undefined ? Math.round((last + 1) * 1000) / 1000 : numberOf(request.value);
  const unit = unitOf(stage, request.unit);
  stage.takeValues(asset, [
    {
      key,
      group: undefined,
      unit,
      points: [{ timestampMs: stage.clock.wallMs() + laterMs, value, status: undefined, stamped: true }],
    },
  ]);
  stage.report(`asset ${asset} gets ${key} = ${value}${unit === undefined ? '' : ` ${unit.symbol}`}`);
}

function keyOf(request: EventRequest): string {
  const key = request.key ?? 'flow';
  if (typeof key !== 'string' || !KEY_PATTERN.test(key)) throw refusal(400, 'is no value key', 'key');
  return key.toLowerCase();
}

function numberOf(value: number | string): number {
  const number = Number(value);
  if (value === '' || !Number.isFinite(number)) throw refusal(400, 'is not a number', 'value');
  return number;
}

function unitOf(stage: Stage, code: string | undefined): Unit | undefined {
  if (code === undefined) return undefined;
  return first(stage, 'units', (unit) => unit.code === code, `no unit ${code.slice(0, 60)}`);
}
