import { KEY_PATTERN, VALUE_STATUSES, type ValueStatus } from '../../contract/values.ts';
import { isObject } from '../http/call.ts';
import type { Unit } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';

export interface PostedPoint {
  timestampMs: number;
  value: number;
  status: ValueStatus | undefined;
  simulated?: boolean | undefined;
  hold?: boolean | undefined;
  /** Stamped on arrival, for it came without a timestamp. */
  stamped: boolean;
}

export interface PostedSeries {
  /** In lower case, as the service keeps it. */
  key: string;
  group: string | undefined;
  unit: Unit | undefined;
  points: PostedPoint[];
}

export interface ValueProblem {
  attribute: string;
  message: string;
}

/** ISO 8601 date and time; without an offset it is UTC. */
const TIMESTAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?$/i;

/**
 * The body of `POST /v1/assets/{id}/values` (platform 10.2), checked member by member. The platform
 * drops what is not valid in silence; the sandbox says what it is, because whoever tests a client wants to know.
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
    return { series, problems: [{ attribute: 'values', message: 'values is not a list' }] };
  }
  for (const [index, entry] of list.entries()) {
    if (problems.length >= 20) break;
    const at = `values[${index}]`;
    if (!isObject(entry)) {
      problems.push({ attribute: at, message: 'is not an object' });
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
  problems.push({ attribute, message: 'has 1 to 128 letters, digits, dots, hyphens or underscores' });
  return undefined;
}

function readUnit(value: unknown, attribute: string, site: SiteModel, problems: ValueProblem[]): Unit | undefined {
  if (isObject(value) && Number.isInteger(value.id)) {
    const unit = site.get('units', value.id as number);
    if (unit) return unit;
    problems.push({ attribute, message: `there is no unit ${value.id}` });
    return undefined;
  }
  if (isObject(value) && typeof value.code === 'string') {
    const unit = site.all('units').find((one) => one.code === value.code);
    if (unit) return unit;
    problems.push({ attribute, message: `there is no unit with the code ${value.code.slice(0, 60)}` });
    return undefined;
  }
  problems.push({ attribute, message: 'is neither {"id": number} nor {"code": string}' });
  return undefined;
}

function readPoints(value: unknown, attribute: string, arrivalMs: number, problems: ValueProblem[]): PostedPoint[] {
  if (!Array.isArray(value)) {
    problems.push({ attribute, message: 'is not a list' });
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
    problems.push({ attribute: at, message: 'is not an object' });
    return undefined;
  }
  const { timestamp, value, status } = entry;
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    problems.push({ attribute: `${at}.value`, message: 'is not a number' });
  }
  if (status !== undefined && !VALUE_STATUSES.includes(status as ValueStatus)) {
    problems.push({ attribute: `${at}.status`, message: `is none of ${VALUE_STATUSES.join(', ')}` });
  }
  for (const flag of ['simulated', 'hold'] as const) {
    if (entry[flag] !== undefined && typeof entry[flag] !== 'boolean') {
      problems.push({ attribute: `${at}.${flag}`, message: 'is neither true nor false' });
    }
  }
  const timestampMs = timestamp === undefined ? arrivalMs : readTimestamp(timestamp);
  if (timestampMs === undefined) problems.push({ attribute: `${at}.timestamp`, message: 'is no ISO 8601 time' });
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

/** Milliseconds since 1970, or `undefined`. */
export function readTimestamp(text: unknown): number | undefined {
  if (typeof text !== 'string') return undefined;
  const match = TIMESTAMP.exec(text);
  if (!match) return undefined;
  const ms = Date.parse(match[1] === undefined ? `${text.replace(',', '.')}Z` : text.replace(',', '.'));
  return Number.isNaN(ms) ? undefined : ms;
}
