/** A container in another time namespace, or one that was restored: its monotonic clock is behind what it was. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { bootId } from '../../src/store/boot-id.ts';
import { GatewayProcess } from './gateway-process.ts';

const TAGS = 'tags:\n  T: { asset: 881, values: { a: { unit: 1 } } }\n';
const AHEAD_S = 10_000_000;

let sandbox: Sandbox;
let agent: GatewayProcess;
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new GatewayProcess(sandbox.url, { tags: TAGS });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const ahead = ['unshare', '--time', '--fork', '--kill-child', '--monotonic', String(AHEAD_S), '--'];
const push = (from: number, count: number) =>
  agent.push(
    Array.from({ length: count }, (_, i) => ({
      tag: 'T',
      key: 'a',
      value: from + i,
      timestamp: 1_790_000_000_000 + from + i,
    })),
  );

describe('a monotonic clock that is behind the last one', () => {
  it('holds nothing back: what earlier runs took in is posted, in its order, and new values with it', async () => {
    sandbox.faults.add({ path: '/v1/assets/*', status: 503 });
    agent.surroundings = ahead;
    await agent.start();
    expect((await push(0, 500)).status).toBe(204);
    await agent.end('SIGKILL');
    agent.surroundings = [];
    await agent.start();
    expect((await push(500, 500)).status).toBe(204);
    // Age counts from what each run knows: a clock that went back makes nothing older.
    expect(await agent.metric('tagferry_buffer_oldest_age_seconds')).toBeLessThan(AHEAD_S / 2);
    sandbox.faults.clear();
    await agent.until(() => sandbox.values.counts(881, 'a').stored === 1_000, 'everything is on the platform');
    const order = sandbox.values.list(881, 'a').map(({ value }) => value);
    expect(order).toEqual([...order].sort((a, b) => Number(a) - Number(b)));
  });
});

describe('the name of a monotonic clock', () => {
  const files = (boot: string | undefined, offsets: string | undefined) => (path: string) => {
    const text = path.endsWith('boot_id') ? boot : offsets;
    if (text === undefined) throw new Error('ENOENT');
    return text;
  };

  it('is that of the boot, and another in each time namespace', () => {
    const zero = 'monotonic           0         0\nboottime            0         0\n';
    expect(bootId(files('b1\n', zero))).toBe('b1');
    expect(bootId(files('b1\n', undefined))).toBe('b1');
    const other = bootId(files('b1\n', zero.replace('monotonic           0', 'monotonic     -100000')));
    expect(other).not.toBe('b1');
    expect(bootId(files('b1\n', zero.replace('monotonic           0', 'monotonic     -100000')))).toBe(other);
  });

  it('is no other where the boot id cannot be read, not even that of the same process', () => {
    expect(bootId(files(undefined, undefined))).not.toBe(bootId(files(undefined, undefined)));
    expect(bootId(files('\n', undefined))).not.toBe(bootId(files('\n', undefined)));
  });
});
