import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { MAIN } from '../../built-agent.ts';

/** Applies the examples for setting up many gateways to a folder, with the sandbox as the platform. */
const EXAMPLES = join(import.meta.dirname, '../../../config/examples');
const ROLE = join(EXAMPLES, 'ansible/roles/tagferry');
const { clientId, clientSecret, technicalUsername, technicalPassword } = SANDBOX_CREDENTIALS;

let sandbox: Sandbox;
let folder: string;
let config: string;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  folder = mkdtempSync(join(tmpdir(), 'tagferry-examples-'));
  config = join(folder, 'config');
  mkdirSync(join(config, 'tags.d'), { recursive: true });
});
afterEach(async () => {
  await sandbox.stop();
  rmSync(folder, { recursive: true, force: true });
});

interface Ended {
  status: number | null;
  /** Standard output and standard error. */
  output: string;
  errors: string;
}

function tagferry(args: readonly string[], input = ''): Promise<Ended> {
  return new Promise((resolve) => {
    const env = { ...process.env, TAGFERRY_ASSET: '881', STATE_DIR: join(folder, 'state'), NO_COLOR: '1' };
    const child = spawn(process.execPath, [MAIN, ...args, '--config', config], { env });
    let output = '';
    let errors = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (output += String(text)));
    child.stderr.on('data', (text) => (errors += String(text)));
    child.on('close', (status) => resolve({ status, output, errors }));
    child.stdin.end(input);
  });
}

/** Writes the answers with the sandbox as the platform, and secrets in files of the test. */
function writeAnswers(text: string): string {
  writeFileSync(join(folder, 'client-secret'), clientSecret, { mode: 0o600 });
  writeFileSync(join(folder, 'technical-password'), technicalPassword, { mode: 0o600 });
  const file = join(folder, 'answers.env');
  const answers = text
    .replace(/^PLATFORM_URL=.*$/m, `PLATFORM_URL=${sandbox.url}`)
    .replace(/^CLIENT_ID=.*$/m, `CLIENT_ID=${clientId}`)
    .replace(/^TECHNICAL_USERNAME=.*$/m, `TECHNICAL_USERNAME=${technicalUsername}`)
    .replaceAll('/run/secrets', folder);
  writeFileSync(file, answers);
  chmodSync(file, 0o600);
  return file;
}

async function expectSetUp(answers: string, tags: string, input = ''): Promise<void> {
  writeFileSync(join(config, 'tags.d/site.yaml'), tags);
  const set = await tagferry(['setup', '--answers', writeAnswers(answers)], input);
  expect(`${set.status} ${set.output}`).toMatch(/^0 /);
  const { status, output } = await tagferry(['check', '--json']);
  expect(JSON.parse(output)).toMatchObject({ ok: true });
  expect(status).toBe(0);
  expect(output + set.output).not.toContain(clientSecret);
  expect(tags).toContain('$' + '{HOSTNAME}');
  expect(hostname()).not.toBe('');
}

describe('configuration example', () => {
  it('for cloud-init creates a gateway configuration without problems', async () => {
    const { write_files: files, runcmd } = parse(readFileSync(join(EXAMPLES, 'cloud-init.yaml'), 'utf8')) as {
      write_files: { path: string; content: string; permissions?: string }[];
      runcmd: string[][];
    };
    const of = (path: string) => files.find((file) => file.path === path)!;
    const setup = runcmd.find((words) => words.includes('setup'))!;
    const answers = of(setup.at(-1)!);
    expect(answers.permissions).toBe('0600');
    expect(setup.slice(-4, -1)).toEqual(['tagferry', 'setup', '--answers']);
    expect(answers.content).not.toMatch(/^(CLIENT_SECRET|TECHNICAL_PASSWORD)=/m);
    await expectSetUp(answers.content, of('/etc/tagferry/tags.d/site.yaml').content);
  });

  it('for the Ansible role creates a gateway configuration without problems, and passes secrets only on standard input', async () => {
    const read = (file: string) => readFileSync(join(ROLE, file), 'utf8');
    const tasks = ['install', 'configure', 'activate'].flatMap(
      (name) =>
        parse(read(`tasks/${name}.yml`)) as Record<string, { argv?: string[]; stdin?: string; dest?: string }>[],
    );
    const setup = tasks.find((task) => task['ansible.builtin.command']?.argv?.includes('setup'))!;
    expect(setup).toMatchObject({ no_log: true });
    const { argv, stdin } = setup['ansible.builtin.command']!;
    expect(argv).toEqual(['tagferry', 'setup', '--answers', '/root/tagferry-answers.env']);
    expect(stdin).toBe('{{ tagferry_client_secret }}\n{{ tagferry_technical_password }}');
    const defaults = parse(read('defaults/main.yml')) as Record<string, unknown>;
    const settings = Object.entries(defaults.tagferry_settings as Record<string, string>);
    // Renders what the template uses of Jinja: one loop, and variables.
    const answers = read('templates/answers.env.j2')
      .replace(/\{% for .*%\}[\s\S]*\{% endfor %\}/, settings.map(([key, value]) => `${key}=${value}`).join('\n'))
      .replaceAll(/\{\{ (\w+) \}\}/g, (_, name: string) => String(defaults[name]));
    expect(answers).not.toMatch(/[{}%]/);
    const secrets = `${clientSecret}\n${technicalPassword}\n`;
    await expectSetUp(answers, read('templates/site.yaml.j2'), secrets);
    // A second run changes nothing, and the role detects this in the output of setup.
    const again = await tagferry(['setup', '--answers', writeAnswers(answers)], secrets);
    const words = /^'(.+)' not in tagferry_setup\.stderr$/.exec(
      (setup as { changed_when?: string }).changed_when ?? '',
    );
    expect(again).toMatchObject({
      status: 0,
      errors: expect.stringContaining(words?.[1] ?? 'the words of changed_when'),
    });
    // Ansible does not create parent folders of templates, so the role creates those that no package contains.
    const made = tasks.findIndex((task) => 'ansible.builtin.file' in task);
    const folders = (tasks[made] as { loop?: string[] } | undefined)?.loop ?? [];
    const written = tasks.findIndex((task) => task['ansible.builtin.template']);
    expect(made).toBeLessThan(written);
    for (const { dest } of tasks.flatMap((task) => task['ansible.builtin.template'] ?? []))
      expect([...folders, '/root']).toContain(dirname(dest!));
  });
});
