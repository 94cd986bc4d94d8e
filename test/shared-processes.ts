/**
 * Test files of a room run one after another in shared processes, because starting a process and loading the sources
 * takes longer than most tests. Such files must not change process-wide state: environment, working folder, clocks, or
 * mocked modules (checked by test/house). The files of this list do, and have their own process.
 */
export const ALONE = [
  // Spies on `Buffer`.
  'test/broker/framing.test.ts',
  // Mocks `@nats-io/jetstream`.
  'test/broker/nats-library.test.ts',
  'test/broker/nats-silent.test.ts',
  // Mocks `node:fs`.
  'test/buffer/sectors.test.ts',
  'test/buffer/series-copy.test.ts',
  // Measures the memory of the process.
  'test/buffer/series.test.ts',
  // Changes PATH or other environment variables.
  'test/commands/logs.test.ts',
  'test/commands/setup.test.ts',
  'test/agent/service-manager.test.ts',
  'test/reactions/post.test.ts',
  // Captures the output to the console.
  'test/commands/people-terminal.test.ts',
  'test/commands/sandbox-verbs.test.ts',
  // Mocks `node:crypto`.
  'test/webhook/constant-time.test.ts',
  // Replaces `SessionFile`.
  'test/platform/session-day.test.ts',
  // A provider that writes to the console when it is loaded.
  'test/platform/foreign-provider.test.ts',
];

/** `file` is a path such as `test/uplink/sender.test.ts`. Files that run for minutes have their own process. */
export function sharesProcess(file: string): boolean {
  return !ALONE.includes(file) && !file.startsWith('test/long/');
}
