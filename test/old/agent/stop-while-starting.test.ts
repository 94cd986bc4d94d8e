import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Agent } from '../../../src/agent/agent.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { messageOf } from '../../../src/base/errors.ts';
import { loadConfiguration } from '../../../src/config/configuration.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { PATIENCE_MS } from '../../setup.ts';
import { LogCapture } from '../../unit/webhook/parts/listening.ts';

/** Interval between the points at which startup is stopped, and the last point. */
const STEP_MS = 6;
const LAST_MS = 120;

let sandbox: Sandbox;
let files: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  files = new AgentProcess(sandbox.url, { tags: 'tags: { T: { asset: 881, values: { a: { unit: 12 } } } }\n' });
});
afterEach(async () => {
  await files.dispose();
  await sandbox.stop();
});

function makeAgent(): Agent {
  return new Agent({
    version: '0.0.0',
    configuration: loadConfiguration({
      directory: files.config,
      environment: {},
      kinds: SOURCE_KINDS,
      actions: ACTION_KINDS,
    }),
    readConfiguration: () => Promise.reject(new Error('nobody asks')),
    clock: systemClock,
    log: new LogCapture().log,
    environment: {},
    onDecommissioned: () => {},
    onFatal: () => {},
  });
}

describe('shutdown', () => {
  it('can abort startup at any point without an error', async () => {
    const ends: string[] = [];
    for (let afterMs = 0; afterMs <= LAST_MS; afterMs += STEP_MS) {
      const agent = makeAgent();
      const start = agent.start().then(() => 'over', messageOf);
      await systemClock.sleep(afterMs);
      await agent.stop();
      const patience = new AbortController();
      const late = systemClock.sleep(PATIENCE_MS, patience.signal).then(
        () => 'hangs',
        () => 'over',
      );
      ends.push(`${afterMs} ms: ${await Promise.race([start, late])}`);
      patience.abort();
    }
    expect(ends.filter((end) => !end.endsWith(': over'))).toEqual([]);
  });
});
