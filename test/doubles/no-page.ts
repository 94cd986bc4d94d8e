import { PageFiles } from '../../src/base/inbound/page-files.ts';

/** For tests of what has nothing to do with the page: one that was not built, and a stream that nobody opens. */
export const noPage = {
  page: new PageFiles(new URL('nowhere/', import.meta.url)),
  live: { open: () => {}, stop: () => {} },
  doctor: { report: () => Promise.reject(new Error('nobody asks')) },
};
