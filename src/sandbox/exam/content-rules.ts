import { createHash } from 'node:crypto';
import { counted } from '../../base/amounts.ts';
import { deprecationOf } from '../../contract/deprecations.ts';
import { headerOf } from '../requests/exchange.ts';
import { jsonObject, type Observed } from './observed.ts';
import { Remembered, type Rule } from './rule.ts';

/** What comes again within this time after it was refused for good was not looked at. */
const AGAIN_WITHIN_MS = 60_000;
const MAX_OPEN_VALUES = 200_000;

const postsValues = (one: Observed) => /^POST \/v1\/assets\/\d+\/values$/.test(one.name);

interface Point {
  key: string;
  timestamp: unknown;
}

/** The points of a post of values; none where it cannot be read. */
function pointsOf(one: Observed): Point[] {
  const { values } = jsonObject(one.exchange.body) as { values?: unknown };
  if (!Array.isArray(values)) return [];
  return values.flatMap((series: { key?: unknown; data?: unknown }) =>
    Array.isArray(series?.data)
      ? series.data.map((point: { timestamp?: unknown }) => ({ key: String(series.key), timestamp: point?.timestamp }))
      : [],
  );
}

/** What a client sends (platform 4, 9 and 10.2). */
export const CONTENT_RULES: readonly Rule[] = [
  {
    id: 'deprecated',
    section: '9',
    requirement: 'no deprecated endpoint is called',
    begin: (tally) => ({
      see: (one) => {
        if (!one.isApi) return;
        const deprecation = deprecationOf(one.entry.path);
        if (deprecation) tally.broken(`${one.name}, which ends on ${deprecation.sunset}`);
        else tally.held();
      },
    }),
  },
  {
    id: 'endpoints',
    section: '4',
    requirement: 'only endpoints that there are are called',
    begin: (tally, { isOffered }) => ({
      see: (one) => {
        if (isOffered(one.entry.method, one.entry.path)) tally.held();
        else tally.broken(`${one.name} is none`);
      },
    }),
  },
  {
    id: 'content-type',
    section: '4.1',
    requirement: 'bodies come as what they are: forms to token endpoints, JSON to the API',
    begin: (tally) => ({
      see: (one) => {
        if ((one.exchange.body?.length ?? 0) === 0) return;
        const type = (headerOf(one.exchange, 'content-type') ?? 'none').split(';')[0]!.trim().toLowerCase();
        if (one.isToken || one.isRevocation) {
          if (type === 'application/x-www-form-urlencoded') tally.held();
          else tally.broken(`${one.name} as ${type}`);
        } else if (one.isApi) {
          if (/^application\/([\w.+-]+\+)?json$/.test(type)) tally.held();
          else tally.broken(`${one.name} as ${type}`);
        }
      },
    }),
  },
  {
    id: 'size',
    section: '10.2',
    requirement: 'no body is over 500 kB',
    begin: (tally) => ({
      see: (one) => {
        if (one.entry.method !== 'POST' || one.entry.fault !== undefined) return;
        if (one.status === 413) tally.broken(`${one.name} of ${one.entry.requestBytes} bytes`);
        else if (one.status !== 0) tally.held();
      },
    }),
  },
  {
    id: 'valid-values',
    section: '10.2',
    requirement: 'what can be checked is checked before it is posted',
    begin: (tally) => ({
      see: (one) => {
        if (!postsValues(one)) return;
        if (one.status === 204) return tally.held();
        const { errors } = one.answer as { errors?: { type?: string; message?: string; attribute?: string }[] };
        const invalid = errors?.find(({ type }) => type === 'invalid');
        if (invalid !== undefined) tally.broken(`${one.name}: ${invalid.attribute} ${invalid.message}`);
      },
    }),
  },
  {
    id: 'timestamps',
    section: '10.2',
    requirement: 'every value has a timestamp with its offset',
    begin: (tally) => ({
      see: (one) => {
        if (!postsValues(one)) return;
        const points = pointsOf(one);
        const bare = points.find(({ timestamp }) => !/(Z|[+-]\d\d:?\d\d)$/i.test(String(timestamp ?? '')));
        if (bare !== undefined)
          tally.broken(`${one.name}: ${bare.key} at ${String(bare.timestamp ?? 'no time').slice(0, 40)}`);
        else if (points.length > 0) tally.held();
      },
    }),
  },
  {
    id: 'nothing-lost',
    section: '10.2',
    requirement: 'values whose post was not confirmed come again',
    begin: (tally) => {
      const open = new Remembered<true>(MAX_OPEN_VALUES);
      return {
        see: (one) => {
          if (!postsValues(one)) return;
          const isOpen = one.status === 0 || one.status === 401 || one.status === 429 || one.status >= 500;
          if (!isOpen && (one.status !== 204 || open.size === 0)) return;
          let came = 0;
          for (const { key, timestamp } of pointsOf(one)) {
            const name = `${one.entry.path} ${key.toLowerCase()} ${Date.parse(String(timestamp))}`;
            if (isOpen) open.set(name, true);
            else if (open.delete(name)) came++;
          }
          if (came > 0) tally.held();
        },
        open: () => (open.size === 0 ? undefined : `${counted(open.size, 'value', 'has', 'have')} not come again`),
      };
    },
  },
  {
    id: 'refused-again',
    section: '10.3',
    requirement: 'what was refused for good is not sent again unchanged',
    begin: (tally) => {
      const refused = new Remembered<number>();
      return {
        see: (one) => {
          if (!one.isApi || one.exchange.body === undefined || one.exchange.body.length === 0) return;
          const name = `${one.name} ${createHash('sha256').update(one.exchange.body).digest('hex')}`;
          const atMs = refused.get(name);
          if (atMs !== undefined && one.startedMs > atMs && one.startedMs - atMs < AGAIN_WITHIN_MS) {
            tally.broken(`${one.name} again, though it was refused`);
          } else if (one.status >= 200 && one.status < 300) tally.held();
          if ([400, 403, 404, 413].includes(one.status)) refused.set(name, one.endedMs);
        },
      };
    },
  },
];
