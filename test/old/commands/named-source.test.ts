import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { runVerb } from './verb-run.ts';

it.each([
  ['sources', 'test', 'plc'],
  ['sources', 'scan', 'plc', '--yes'],
  ['sources', 'trust', 'plc'],
])('tagferry %s %s reports an invalid source and how to show its problem', async (...verb) => {
  const config = mkdtempSync(join(tmpdir(), 'tagferry-named-'));
  try {
    writeFileSync(join(config, 'agent.env'), 'PLATFORM_URL=http://127.0.0.1:1\n', { mode: 0o600 });
    writeFileSync(join(config, 'tags.yaml'), 'sources: { plc: { opcua: "opc.tcp://127.0.0.1:1", securty: None } }\n');
    const { status, stderr } = await runVerb([...verb, '--config', config]);
    expect(status).toBe(2);
    expect(stderr).toMatch(/no valid source "plc"\n.*tagferry check/);
  } finally {
    rmSync(config, { recursive: true });
  }
});
