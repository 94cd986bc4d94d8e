import { describe, expect, it } from 'vitest';
import { check } from './folder.ts';

const TAGS =
  'sources: { broker: { mqtt: "mqtt://127.0.0.1" }, line: { nats: "nats://127.0.0.1" }, plc: { modbus: "tcp://127.0.0.1" } }\n';
const VALUES = 'tags: { T: { asset: 1, values: { a: { from: plc, register: 1 } } } }\n';

function lines(...env: string[]): readonly string[] {
  const checked = check({ 'agent.env': `${env.join('\n')}\n`, 'tags.yaml': TAGS + VALUES });
  return checked.lines.filter((line) => line.includes('agent.env'));
}

describe('WEBHOOK_FROM and WEBHOOK_TO', () => {
  it.each([
    [['WEBHOOK_FROM=broker platform/events', 'WEBHOOK_SECRET=geheim']],
    [['WEBHOOK_FROM=line platform.events', 'WEBHOOK_SECRET=one,two', 'WEBHOOK_POLL=0']],
    [['WEBHOOK_TO=line platform.events', 'WEBHOOK_URL=https://gw.example/hook']],
  ])('accept %j', (env) => {
    expect(lines(...env)).toEqual([]);
  });

  it.each([
    [['WEBHOOK_FROM=broker platform/events'], 'DIR/agent.env:1: WEBHOOK_FROM is set, and WEBHOOK_SECRET is empty'],
    [
      ['WEBHOOK_FROM=platform/events', 'WEBHOOK_SECRET=a'],
      'is not a broker and a topic, specify both, for example: broker platform/events',
    ],
    [['WEBHOOK_FROM=plc a/b', 'WEBHOOK_SECRET=a'], 'DIR/agent.env:1: WEBHOOK_FROM: tags.yaml contains no broker "plc"'],
    [['WEBHOOK_TO=brok a/b'], 'DIR/agent.env:1: WEBHOOK_TO: tags.yaml contains no broker "brok"'],
    [['WEBHOOK_TO=broker a/#'], 'DIR/agent.env:1: WEBHOOK_TO: topic "a/#" contains a wildcard'],
    [['WEBHOOK_TO=line a..b'], 'DIR/agent.env:1: WEBHOOK_TO: topic "a..b" has an empty level'],
    [
      ['WEBHOOK_FROM=broker a/b', 'WEBHOOK_SECRET=a', 'WEBHOOK_URL=https://gw.example/hook'],
      'DIR/agent.env:3: WEBHOOK_URL conflicts with WEBHOOK_FROM, remove WEBHOOK_URL or WEBHOOK_FROM',
    ],
    [
      ['WEBHOOK_FROM=broker a/b', 'WEBHOOK_SECRET=a', 'WEBHOOK_POLL=5m'],
      'DIR/agent.env:3: WEBHOOK_POLL conflicts with WEBHOOK_FROM',
    ],
  ])('reject %j', (env, line) => {
    expect(lines(...env).join('\n')).toContain(line);
  });
});
