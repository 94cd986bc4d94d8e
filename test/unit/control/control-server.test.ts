import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock as clock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { askAgent, streamFromAgent } from '../../../src/commands/connection/control-client.ts';
import { ControlServer } from '../../../src/control/control-server.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-control-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('control server that stops', () => {
  it.each([
    { what: 'a call', isStreamed: false },
    { what: 'a streamed call', isStreamed: true },
  ])('ends $what in progress with the reason', async ({ isStreamed }) => {
    const started = Promise.withResolvers<void>();
    const path = join(folder, 'control.sock');
    const routes = {
      wait: async (_: unknown, { signal, write }: { signal: AbortSignal; write(chunk: string): Promise<void> }) => {
        if (isStreamed) await write('first\n');
        started.resolve();
        await clock.sleep(60_000, signal);
      },
    };
    const server = new ControlServer(routes, { path, clock, log: silentLogger() });
    await server.start();
    const place = { stateDir: folder, socket: path, directory: folder, unconfigured: false };
    const called = isStreamed
      ? streamFromAgent(place, 'wait', {}).then((stream) => stream.toArray())
      : askAgent(place, 'wait');
    const outcome = expect(called).rejects.toMatchObject({ code: 'agent.stopping', message: 'the agent is stopping' });
    await started.promise;
    await server.stop();
    await outcome;
  });
});
