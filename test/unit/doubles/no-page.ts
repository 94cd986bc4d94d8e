import { PageFiles } from '../../../src/base/inbound/page-files.ts';

/** Health without problems, for tests that do not concern health. */
export const HEALTHY = {
  ok: true,
  problems: [],
  notes: [],
  session: { state: 'valid', usable: true, failures: 0, last_error: undefined },
} as const;

/** Page without files and stream without viewers, for tests that do not concern the page. */
export const noPage = {
  page: new PageFiles(new URL('nowhere/', import.meta.url)),
  live: { open: () => {}, stop: () => {} },
  doctor: { report: () => Promise.reject(new Error('nobody asks')) },
};
