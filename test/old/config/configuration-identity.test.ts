/** Digest of the active configuration, and files that differ from it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ConfigurationReport } from '../../../src/config/configuration-report.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, values: { flow: {} } }\n';
const MORE_TAGS = `${TAGS}  FT-102: { asset: 882, values: { flow: {} } }\n`;

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { WEBHOOK_LISTEN: '', CONFIG_VERSION: 'rollout-7' } });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const write = (name: string, text: string) => writeFileSync(join(agent.config, name), text);
const read = (name: string) => readFileSync(join(agent.config, name), 'utf8');
const verb = (...words: string[]) => runVerb([...words, '--config', agent.config]);
const identity = async () => {
  const { stdout } = await verb('status', '--json');
  return (JSON.parse(stdout) as { configuration: ConfigurationReport }).configuration;
};

describe('configuration identity', () => {
  it('lists an edited file as changed until a reload, which updates the digest and timestamp', async () => {
    await agent.start();
    const before = await identity();
    expect(before).toMatchObject({
      version: 'rollout-7',
      digest: expect.stringMatching(/^[0-9a-f]{12}$/),
      changed_files: [],
    });
    expect(before.disk_digest).toBe(before.files_digest);

    write('tags.yaml', MORE_TAGS);
    const edited = await identity();
    expect(edited).toMatchObject({
      digest: before.digest,
      files_digest: before.files_digest,
      since: before.since,
      changed_files: ['tags.yaml'],
    });
    expect(edited.disk_digest).not.toBe(before.disk_digest);
    expect(await agent.metric('tagferry_configuration_changed_files')).toBe(1);
    expect((await verb('status')).stdout).toMatch(
      /config +rollout-7, files \w{12}, since [\s\S]*changed but not loaded: tags\.yaml/,
    );
    const doctor = (await verb('doctor')).stdout;
    expect(doctor).toMatch(/configuration\.in_force *in effect: rollout-7, files \w{12}/);
    expect(doctor).toMatch(/not loaded: tags\.yaml; a reload\s+would apply them: 2 tags\s+instead of 1/);

    expect((await verb('reload')).status).toBe(0);
    const after = await identity();
    expect(after).toMatchObject({ files_digest: edited.disk_digest, changed_files: [] });
    expect(after.digest).not.toBe(before.digest);
    expect(Date.parse(after.since)).toBeGreaterThan(Date.parse(before.since));
    expect(await agent.metric('tagferry_configuration_changed_files')).toBe(0);
    const { text } = await agent.call(agent.ops, '/metrics');
    expect(text).toContain(
      `tagferry_configuration_info{digest="${after.digest}",files="${after.files_digest}",version="rollout-7"} 1`,
    );
  });

  it('is unchanged after a rejected reload, which names the rejected file', async () => {
    await agent.start();
    const before = await identity();
    write('tags.yaml', 'tags:\n  FT-101: { asset: none }\n');
    expect((await verb('reload')).status).toBe(1);
    expect(await identity()).toMatchObject({
      digest: before.digest,
      files_digest: before.files_digest,
      since: before.since,
      changed_files: ['tags.yaml'],
    });
    expect((await verb('doctor')).stdout).toMatch(/not loaded: tags\.yaml; a reload\s+would reject the files/);
  });

  it('includes placeholder values in the active digest, but not in the file digest', async () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    write('tags.yaml', 'tags:\n  "${LINE}-101": { asset: 881, values: { flow: {} } }\n');
    await agent.start({ LINE: 'A' });
    const first = await identity();
    await agent.end('SIGTERM');
    await agent.start({ LINE: 'B' });
    const second = await identity();
    expect(second.files_digest).toBe(first.files_digest);
    expect(second.digest).not.toBe(first.digest);
  });

  it('excludes secrets, but names the file if a secret changed', async () => {
    const broker = (password: string) =>
      `sources:\n  plant: { mqtt: "mqtt://user:${password}@127.0.0.1:1" }\n` +
      'tags:\n  FT-101: { asset: 881, values: { flow: { from: plant, topic: a } } }\n';
    write('tags.yaml', broker('first'));
    await agent.start();
    const before = await identity();
    write('tags.yaml', broker('second'));
    write('agent.env', read('agent.env').replace(/(CLIENT_SECRET=.*)\n/, '$1-new # comment\n'));
    const edited = await identity();
    expect(edited.changed_files).toEqual(['agent.env', 'tags.yaml']);
    expect(edited.disk_digest).toBe(before.files_digest);
    // The platform would reject the secret.
    await sandbox.goOffline('refuse');
    expect((await verb('reload')).status).toBe(0);
    expect(await identity()).toMatchObject({
      digest: before.digest,
      files_digest: before.files_digest,
      changed_files: [],
    });
  });
});
