import { KEY_PATTERN, VALUE_STATUSES, type ValueStatus } from '../../contract/values.ts';
import { isObject, readTimestamp } from '../http/call.ts';
import type { Unit } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';

export interface PostedPoint {
  timestampMs: number;
  value: number;
  status: ValueStatus | undefined;
  simulated?: boolean | undefined;
  hold?: boolean | undefined;
  /** Whether the timestamp was missing and replaced with the arrival time. */
  stamped: boolean;
}

export interface PostedSeries {
  /** In lower case, as the service stores it. */
  key: string;
  group: string | undefined;
  unit: Unit | undefined;
  points: PostedPoint[];
}

export interface ValueProblem {
  attribute: string;
  message: string;
}

/**
 * Parses the body of `POST /v1/assets/{id}/values` (platform 10.2). The platform silently discards invalid values,
 * whereas the sandbox reports the reason.
 */
export function readValuesBody(
  body: unknown,
  site: SiteModel,
  arrivalMs: number,
): { series: PostedSeries[]; problems: ValueProblem[] } {
  const problems: ValueProblem[] = [];
  const series: PostedSeries[] = [];
  const list = isObject(body) ? body.values : undefined;
  if (!Array.isArray(list)) {
    return { series, problems: [{ attribute: 'values', message: 'values must be a list' }] };
  }
  for (const [index, entry] of list.entries()) {
    if (problems.length >= 20) break;
    const at = `values[${index}]`;
    if (!isObject(entry)) {
      problems.push({ attribute: at, message: 'must be an object' });
      continue;
    }
    const key = name(entry.key, `${at}.key`, problems);
    const group = entry.group === undefined ? undefined : name(entry.group, `${at}.group`, problems);
    const unit = entry.unit === undefined ? undefined : readUnit(entry.unit, `${at}.unit`, site, problems);
    const points = readPoints(entry.data, `${at}.data`, arrivalMs, problems);
    if (key !== undefined && points.length > 0) series.push({ key, group, unit, points });
  }
  return { series, problems };
}

function name(value: unknown, attribute: string, problems: ValueProblem[]): string | undefined {
  if (typeof value === 'string' && KEY_PATTERN.test(value)) return value.toLowerCase();
  problems.push({ attribute, message: 'must have 1 to 128 letters, digits, dots, hyphens or underscores' });
  return undefined;
}

function readUnit(value: unknown, attribute: string, site: SiteModel, problems: ValueProblem[]): Unit | undefined {
  if (isObject(value) && Number.isInteger(value.id)) {
    const unit = site.get('units', value.id as number);
    if (unit) return unit;
    problems.push({ attribute, message: `no unit with the ID ${value.id}` });
    return undefined;
  }
  if (isObject(value) && typeof value.code === 'string') {
    const unit = site.unitByCode(value.code);
    if (unit) return unit;
    problems.push({ attribute, message: `no unit with the code ${value.code.slice(0, 60)}` });
    return undefined;
  }
  problems.push({ attribute, message: 'must be {"id": number} or {"code": string}' });
  return undefined;
}

function readPoints(value: unknown, attribute: string, arrivalMs: number, problems: ValueProblem[]): PostedPoint[] {
  if (!Array.isArray(value)) {
    problems.push({ attribute, message: 'must be a list' });
    return [];
  }
  const points: PostedPoint[] = [];
  for (const [index, entry] of value.entries()) {
    if (problems.length >= 20) return points;
    const point = readPoint(entry, `${attribute}[${index}]`, arrivalMs, problems);
    if (point) points.push(point);
  }
  return points;
}

function readPoint(entry: unknown, at: string, arrivalMs: number, problems: ValueProblem[]): PostedPoint | undefined {
  const before = problems.length;
  if (!isObject(entry)) {
    problems.push({ attribute: at, message: 'must be an object' });
    return undefined;
  }
  const { timestamp, value, status } = entry;
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    problems.push({ attribute: `${at}.value`, message: 'must be a number' });
  }
  if (status !== undefined && !VALUE_STATUSES.includes(status as ValueStatus)) {
    problems.push({ attribute: `${at}.status`, message: `must be one of ${VALUE_STATUSES.join(', ')}` });
  }
  for (const flag of ['simulated', 'hold'] as const) {
    if (entry[flag] !== undefined && typeof entry[flag] !== 'boolean') {
      problems.push({ attribute: `${at}.${flag}`, message: 'must be true or false' });
    }
  }
  const timestampMs = timestamp === undefined ? arrivalMs : readTimestamp(timestamp);
  if (timestampMs === undefined) problems.push({ attribute: `${at}.timestamp`, message: 'must be an ISO 8601 time' });
  if (problems.length > before) return undefined;
  return {
    timestampMs: timestampMs!,
    value: value as number,
    status: status as ValueStatus | undefined,
    simulated: entry.simulated as boolean | undefined,
    hold: entry.hold as boolean | undefined,
    stamped: timestamp === undefined,
  };
}
