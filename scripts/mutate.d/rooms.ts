/** The rooms that keep the promise: their sources, and the tests that are to notice each change of them. */
export interface Room {
  name: string;
  sources: readonly string[];
  tests: readonly string[];
}

export const ROOMS: readonly Room[] = [
  {
    name: 'buffer',
    sources: ['src/buffer/**/*.ts'],
    tests: ['test/buffer/*.test.ts', 'test/model/value-store.test.ts', 'test/fuzz/*.test.ts', 'test/store/*.test.ts'],
  },
  { name: 'uplink', sources: ['src/uplink/*.ts'], tests: ['test/uplink/*.test.ts'] },
  {
    name: 'inbox',
    sources: [
      'src/webhook/{canonical-json,event-feed,group-commit,identity,inbox,inbox-*,listener,received-event,seen-memory,signature}.ts',
    ],
    tests: [
      'test/webhook/{crash,identity,inbox,listener,listener-guards,signature,catch-up}.test.ts',
      'test/model/inbox.test.ts',
    ],
  },
  {
    name: 'session',
    sources: ['src/platform/session/*.ts', 'src/platform/grants/*.ts'],
    tests: ['test/platform/{session,session-refused,session-day,grants,client}.test.ts'],
  },
];
