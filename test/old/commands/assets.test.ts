import { existsSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ObjectListing } from '../../../src/access/access-table.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { STRICT_RULE_NAMES } from '../../../src/sandbox/strictness.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from './verb-run.ts';

/** tagferry assets */
const BY_INSTRUMENTATION = '/v1/assets/{instrumentation_id}/values';
const TAGS = 'tags:\n  FT-101: { asset: 900, instrumentation: 881, values: { flow: { unit: { code: one } } } }\n';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  // The test listener is on this machine.
  const strict = STRICT_RULE_NAMES.filter((rule) => rule !== 'webhook-address');
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 }, strict });
  await sandbox.start();
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

async function begin(env: Record<string, string> = {}): Promise<void> {
  const port = await freePort();
  const webhook = { WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/hook` };
  agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { ...webhook, ...env } });
  await agent.start();
  await agent.registered();
}

const verb = (...args: string[]) => runVerb(['assets', ...args, '--config', agent.config]);
const listing = async (...args: string[]) => JSON.parse((await verb(...args, '--json')).stdout) as ObjectListing;

/** Returns the kind, id, names and state of each object, sorted. */
async function known(...args: string[]): Promise<unknown[]> {
  const { objects } = await listing(...args);
  return objects
    .map(({ kind, id, serial_number, tag, name, state }) => [kind, id, serial_number ?? tag, name, state])
    .toSorted((one, other) => (String(one) < String(other) ? -1 : 1));
}

/** Revokes and grants the permission: the platform sends `…_disappeared` and `…_appeared`. */
function regain(type: 'Asset' | 'Instrumentation' | 'Node', id: number): void {
  sandbox.revokePermission({ type, id });
  sandbox.grantPermission({ type, id });
}

describe('`tagferry assets`', () => {
  it('lists assets that appeared or disappeared at runtime, even after kill -9 and a restart', async () => {
    await begin();
    regain('Asset', 910);
    regain('Instrumentation', 4790);
    regain('Node', 19);
    const regainedMs = Date.now();
    // Of events within a second, the appearance takes precedence, and 911 inherits the permissions of 910.
    await agent.until(() => Date.now() > regainedMs + 1_000, 'the next event is later');
    sandbox.revokePermission({ type: 'Asset', id: 911 });
    const expected = [
      ['asset', 910, 'SK-910', null, 'visible'],
      ['asset', 911, 'SK-911', null, 'lost'],
      ['instrumentation', 4790, 'GW-01', null, 'visible'],
      // Only `node_disappeared` has a name.
      ['node', 19, 'CTRL', 'Control context', 'visible'],
    ];
    const isWhole = async () =>
      (await known()).filter((one) => JSON.stringify(expected).includes(JSON.stringify(one))).length === 4;
    await agent.until(isWhole, 'all four are listed');
    const running = await listing();
    await agent.end('SIGKILL');
    expect(await listing()).toEqual(running);
    await agent.start();
    expect(await listing()).toEqual(running);

    sandbox.revokePermission({ type: 'Asset', id: 910 });
    const isLost = async () => JSON.stringify(await known('sk-910')).includes('lost');
    await agent.until(isLost, 'the asset is listed as disappeared');
    expect(await known('SK-910')).toEqual([['asset', 910, 'SK-910', null, 'lost']]);
    // The platform receives no request about an asset.
    const asked = sandbox.requests.list().map(({ method, path }) => `${method} ${path}`);
    expect(asked.filter((one) => /\/(assets|instrumentations|nodes)\b/.test(one))).toEqual([]);
  });

  it('finds objects by part of their ID, serial number, tag or name, and prints a table', async () => {
    await begin();
    regain('Asset', 910);
    regain('Node', 19);
    await agent.until(async () => (await known('ctrl')).length === 1, 'the node is listed');
    await agent.until(async () => (await known('910')).length === 1, 'the asset is listed');
    expect(await known('k-910')).toEqual([['asset', 910, 'SK-910', null, 'visible']]);
    expect(await known('CONTROL CON')).toEqual([['node', 19, 'CTRL', 'Control context', 'visible']]);
    const { stdout } = await verb('910');
    const [head, row] = stdout.split('\n');
    expect(head).toMatch(/^kind +id +serial number +tag +name +state +last seen \(UTC\)$/);
    expect(row).toMatch(/^asset +910 +SK-910 +- +- +visible +\d{4}-/);
    expect((await verb('no such thing')).stdout).toBe('No matches.\n');
    expect((await verb('--limit', '0')).status).toBe(2);
    const limited = await verb('--limit', '1');
    expect(limited.stdout).toMatch(/\n1 of [2-9]\d* objects shown\. /);
  });

  it('adds known IDs and names to the editor schema, which also accepts other IDs', async () => {
    await begin();
    regain('Asset', 900);
    regain('Instrumentation', 4790);
    await agent.until(async () => (await known('gw-01')).length === 2, 'both are listed');
    const shipped = join(import.meta.dirname, '../../../config/schema');
    const before = readFileSync(join(shipped, 'tags.schema.json'), 'utf8');
    symlinkSync(shipped, join(agent.config, 'schema'));
    const { status, stdout } = await verb('--schema');
    const path = join(agent.config, 'schema/tags.schema.json');
    expect([status, stdout]).toEqual([0, `Wrote ${path}: 1 asset, 1 instrumentation.\n`]);
    const schema = JSON.parse(readFileSync(path, 'utf8'));
    const tag = schema.properties.tags.additionalProperties.properties;
    expect(tag.asset.anyOf[0]).toEqual({ const: 900, description: 'serial number GW-01, visible' });
    expect(tag.instrumentation.anyOf[0]).toEqual({ const: 4790, description: 'tag GW-01, visible' });
    const check = new Ajv({ strict: false }).compile(schema);
    const isValid = (asset: unknown) => check({ tags: { T: { asset, values: { flow: {} } } } });
    expect([900, 12_345, 0, 'GW-01'].map(isValid)).toEqual([true, true, false, false]);
    // The package files are unchanged.
    expect(readFileSync(join(shipped, 'tags.schema.json'), 'utf8')).toBe(before);
    expect(existsSync(join(agent.config, 'schema/reactions.schema.json'))).toBe(true);
    expect((await runVerb(['check', '--config', agent.config])).status).toBe(0);
  });

  it('records the IDs in accepted posts, and writes each ID at most once per day', async () => {
    await begin({ VALUES_PATH: BY_INSTRUMENTATION });
    const push = async (value: number) => {
      const before = sandbox.values.counts().stored;
      await agent.push([{ tag: 'FT-101', key: 'flow', value }]);
      await agent.until(() => sandbox.values.counts().stored > before, 'the value is on the platform');
    };
    await push(1);
    await agent.end('SIGTERM');
    const first = await listing('');
    expect(first.objects.map(({ kind, id, state }) => [kind, id, state])).toEqual([
      ['instrumentation', 881, 'posted'],
      ['asset', 900, 'posted'],
    ]);
    expect(first.objects[0]!.accepted_at).toMatch(/^\d{4}-/);
    await agent.start();
    await push(2);
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(await listing('')).toEqual(first);
  });
});
