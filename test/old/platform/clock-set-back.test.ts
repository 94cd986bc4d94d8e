/** A gateway's clock is set back while the agent is stopped: arrival times are never repeated. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

const TAGS = 'tags:\n  T: { asset: 881, values: { a: { unit: 1 }, b: { unit: 1 } } }\n';

let sandbox: Sandbox;
let agent: AgentProcess;
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: TAGS });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

/** Starts the agent with an offset wall clock; see `moved-clock.mjs`. */
async function startAt(movedMs: number): Promise<void> {
  const moved = join(agent.folder, 'moved');
  writeFileSync(moved, String(movedMs));
  await agent.start({
    NODE_OPTIONS: `--import=${pathToFileURL(join(import.meta.dirname, 'moved-clock.mjs')).href}`,
    MOVED_CLOCK: moved,
  });
}

it.each(['SIGTERM', 'SIGKILL'] as const)(
  'timestamps in a series keep increasing after %s even if the clock is set back',
  async (signal) => {
    let sent = 0;
    for (const movedMs of [0, -3_600_000, -3_600_000, -1_800_000]) {
      await startAt(movedMs);
      for (let request = 0; request < 4; request++) {
        const values = ['a', 'a', 'b'].map((key) => ({ tag: 'T', key, value: sent++ }));
        expect((await agent.push(values)).status).toBe(204);
      }
      await agent.until(
        () => sandbox.values.counts(881).stored === sent,
        'every value has arrived with a distinct time',
      );
      await agent.end(signal);
    }
    for (const key of ['a', 'b']) {
      const stored = sandbox.values.list(881, key).map(({ value }) => value);
      // The platform sorts by time.
      expect(stored).toEqual([...stored].sort((one, other) => one - other));
    }
  },
);
