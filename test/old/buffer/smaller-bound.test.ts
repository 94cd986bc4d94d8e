import { execFile } from 'node:child_process';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MAIN } from '../../built-agent.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';

const BOUND = 1_000_000;
const REQUESTS = 30;
const A_REQUEST = 8_000;

let platform: Server;
let agent: GatewayProcess;
const tags = 'tags:\n  T:\n    asset: 1\n    values:\n      a: {}\n      b: {}\n      c: {}\n';

beforeEach(async () => {
  platform = createServer((_, response) => response.writeHead(503).end());
  await new Promise<void>((resolve) => platform.listen(0, '127.0.0.1', resolve));
  agent = new GatewayProcess(url(), { tags, env: { BUFFER_MAX_BYTES: '0' } });
});
afterEach(async () => {
  await agent.dispose();
  platform.close();
});
const url = () => `http://127.0.0.1:${(platform.address() as AddressInfo).port}`;

async function check(): Promise<string> {
  const run = promisify(execFile)(process.execPath, [MAIN, 'check', '--config', agent.config]);
  return (await run.catch((error: { stdout: string }) => error)).stdout;
}

describe('smaller BUFFER_MAX_BYTES', () => {
  it('drops and counts only the excess values on reload, as predicted by check', async () => {
    await agent.start();
    for (let request = 0; request < REQUESTS; request++) {
      const values = Array.from({ length: A_REQUEST }, (_, i) => ({
        tag: 'T',
        key: 'abc'[i % 3],
        value: Math.sqrt(2 + request * A_REQUEST + i),
        timestamp: 1_790_000_000_000 + request * A_REQUEST + i,
      }));
      expect((await agent.push(values)).status).toBe(204);
    }
    const accepted = REQUESTS * A_REQUEST;
    agent.write(url(), { tags, env: { BUFFER_MAX_BYTES: String(BOUND) } });
    const told = await check();
    const [, values] = /BUFFER_MAX_BYTES 1000000 would drop (?:about )?([\d,]+) /.exec(told) ?? [];
    expect(Number(values?.replaceAll(',', ''))).toBeGreaterThan(accepted * 0.3);
    expect(Number(values?.replaceAll(',', ''))).toBeLessThan(accepted);

    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > 0, 'the reload is complete');
    const isSettled = async () =>
      (await agent.metric('tagferry_buffer_bytes')) <= BOUND &&
      (await agent.metric('tagferry_buffer_values')) +
        (await agent.metric('tagferry_values_dropped_total{reason="bytes"}')) ===
        accepted;
    await agent.until(isSettled, 'the limit is in effect');
    const standing = await agent.metric('tagferry_buffer_values');
    // About nine bytes per value, so most of the space is used.
    expect(standing * 8).toBeGreaterThan(BOUND * 0.6);
    expect(await check()).not.toContain('would drop');
    expect(agent.logged('buffer.dropped').length).toBeGreaterThan(0);
  });
});
