/**
 * Rooms whose files of tests run one after another in processes that they share, for to start one and to load the sources costs most of
 * them more than their tests do. They touch nothing that a process has once (a test of the house looks): its environment, its folder, its
 * clocks, modules put in the place of others.
 */
export const SHARED_ROOMS = [
  'access',
  'base',
  'config',
  'contract',
  'control',
  'house',
  'model',
  'ops',
  'platform',
  'sandbox',
  'sources',
  'spec',
  'uplink',
  'webhook',
].map((room) => `test/${room}`);

/** Of these rooms, what has a process of its own. */
export const ALONE = [
  // Another `node:crypto`.
  'test/webhook/constant-time.test.ts',
  // Another `SessionFile`, for a test.
  'test/platform/session-day.test.ts',
  // A provider that writes to the console when it is loaded.
  'test/platform/foreign-provider.test.ts',
];

/** `file` as the lists here name it: `test/uplink/sender.test.ts`. */
export function sharesProcess(file: string): boolean {
  return !ALONE.includes(file) && SHARED_ROOMS.some((room) => file.startsWith(`${room}/`));
}
