import { PageFiles } from '../../../src/base/inbound/page-files.ts';

/** Page without files and stream without viewers, for tests that do not concern the page. */
export const noPage = {
  page: new PageFiles(new URL('nowhere/', import.meta.url)),
  live: { open: () => {}, stop: () => {} },
  doctor: { report: () => Promise.reject(new Error('nobody asks')) },
};
