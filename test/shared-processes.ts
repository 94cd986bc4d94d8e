/**
 * Files of a room run one after another in processes that they share, for to start one and to load the sources costs most of them more than
 * their tests do. They touch nothing that a process has once (a test of the house looks): its environment, its folder, its clocks, modules
 * put in the place of others. These do, and have a process of their own.
 */
export const ALONE = [
  // Spies on `Buffer`.
  'test/broker/framing.test.ts',
  // Another `@nats-io/jetstream`.
  'test/broker/nats-library.test.ts',
  'test/broker/nats-silent.test.ts',
  // Another `node:fs`.
  'test/buffer/disk-guard.test.ts',
  'test/buffer/disk-reserve.test.ts',
  'test/buffer/sectors.test.ts',
  'test/buffer/series-copy.test.ts',
  // What the memory of the process is, measured.
  'test/buffer/series.test.ts',
  // Another PATH, or more of the environment.
  'test/commands/logs.test.ts',
  'test/commands/setup.test.ts',
  'test/daemon/service-manager.test.ts',
  'test/reactions/post-action.test.ts',
  // What is written to the console, taken by the test.
  'test/commands/people-terminal.test.ts',
  'test/commands/sandbox-verbs.test.ts',
  // Another `node:crypto`.
  'test/webhook/constant-time.test.ts',
  // Another `SessionFile`, for a test.
  'test/platform/session-day.test.ts',
  // A provider that writes to the console when it is loaded.
  'test/platform/foreign-provider.test.ts',
];

/** `file` as it is named here: `test/uplink/sender.test.ts`. What is long by nature keeps machines, and stands by itself. */
export function sharesProcess(file: string): boolean {
  return !ALONE.includes(file) && !file.startsWith('test/long/');
}
