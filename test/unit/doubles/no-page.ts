import { systemClock } from '../../../src/base/clock.ts';
import { PageFiles } from '../../../src/base/inbound/page-files.ts';
import type { LiveRoutes } from '../../../src/ops/ops-server.ts';

/** Health without problems, for tests that do not concern health. */
export const HEALTHY = {
  ok: true,
  problems: [],
  notes: [],
  session: { state: 'valid', usable: true, failures: 0, last_error: undefined },
} as const;

/** Routes of the page with the sight that they require, and the same answer. */
export function liveRoutes(answer: LiveRoutes['now']['answer']): LiveRoutes {
  const [forStatus, forAll] = (['status', 'all'] as const).map((sight) => ({ sight, answer }));
  return {
    ...{ now: forStatus!, history: forStatus!, tags: forStatus!, tag: forStatus!, held: forStatus! },
    ...{ events: forAll!, assets: forAll!, log: forAll!, doctor: forAll! },
  };
}

/** Page without files and data, for tests that do not concern the page. */
export const noPage = {
  page: new PageFiles(new URL('nowhere/', import.meta.url)),
  live: liveRoutes(() => undefined),
  clock: systemClock,
};
