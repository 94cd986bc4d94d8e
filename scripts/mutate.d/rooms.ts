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
    tests: [
      'test/buffer/*.test.ts',
      'test/model/value-store.test.ts',
      'test/faults/{corruption,rebuild,rescue}.test.ts',
    ],
  },
  {
    name: 'uplink',
    sources: ['src/uplink/*.ts'],
    // Without those that go through hours of a fleet: each change would wait for them.
    tests: [
      'test/uplink/{answer-time,compression,delivery-log,effects,effects-outage,hostile,link,log-words,model,outcome,parts,post-size,probe-turns,probes,recovery,sender,uplink,verdict}.test.ts',
      'test/uplink/{fault-attribution,outcome-wholes,post,post-lag,slices}.test.ts',
      'test/uplink/{asset-schedule,planner,planner-bounds,planner-whole,sending,sending-posts,uplink-beside,uplink-loop,uplink-stop,waits}.test.ts',
    ],
  },
  {
    name: 'inbox',
    sources: [
      'src/webhook/{canonical-json,event-feed,group-commit,identity,inbox,inbox-*,listener,received-event,seen-memory,signature}.ts',
    ],
    tests: [
      'test/webhook/{canonical-form,catch-up,crash,event-feed,group-commit,identity,inbox,inbox-answers,inbox-kept,inbox-rows,inbox-salvage,inbox-salvage-tables,inbox-upkeep}.test.ts',
      'test/webhook/{listener,listener-answers,listener-ends,listener-guards,received-event,relay,self-test,signature,signature-texts}.test.ts',
      'test/{control,model}/{event-routes,inbox}.test.ts',
      'test/reactions/{crash,giving-up,runner}.test.ts',
      'test/faults/corrupt-inbox.test.ts',
    ],
  },
  {
    name: 'session',
    sources: ['src/platform/session/*.ts', 'src/platform/grants/*.ts'],
    tests: [
      'test/platform/{answer-words,client,foreign-provider,grant-requests,grants,retired-tokens,session,session-*,token-answers,token-keeper}.test.ts',
    ],
  },
];
