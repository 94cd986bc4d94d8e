import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { StrictBroker } from '../../unit/broker/strict-broker.ts';
import { runVerb } from './verb-run.ts';

let config: string;

beforeEach(() => {
  config = mkdtempSync(join(tmpdir(), 'tagferry-scan-address-'));
});
afterEach(() => rmSync(config, { recursive: true, force: true }));

const scan = (...words: string[]) => runVerb(['sources', 'scan', ...words, '--yes', '--config', config]);

describe('tagferry sources scan with an address', () => {
  it('prints the source and its values without tags.yaml', async () => {
    const broker = new StrictBroker();
    const address = `mqtt://127.0.0.1:${await broker.start()}`;
    broker.publish('site/ft101', '12.5', { retain: true });
    try {
      const { status, stdout, stderr } = await scan(address, 'site/#');
      expect(`${status} ${stderr}`).toMatch(/^0/);
      expect(parse(stdout)).toEqual({
        sources: { broker: { mqtt: address } },
        tags: { 'FT-101': { asset: null, values: { ft101: { from: 'broker', topic: 'site/ft101' } } } },
      });
    } finally {
      await broker.stop();
    }
  });

  it.for([
    ['mqtt://gw:hunter2@broker', 'password_file'],
    ['http://plc', 'tcp://host:502'],
    ['tcp://plc:502', 'sources of the kind modbus cannot be scanned'],
  ] as const)('suggests a correction for %s', async ([address, hint]) => {
    const { status, stderr } = await scan(address);
    expect(status).toBe(2);
    expect(stderr).toContain(hint);
  });
});
