import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ObjectKind, ObjectNames } from '../../../src/access/access-event.ts';
import { AccessTable } from '../../../src/access/access-table.ts';
import { openDatabase } from '../../../src/base/database.ts';
import { serviceStart } from '../../../src/commands/setup/next-steps.ts';
import { loadConfiguration } from '../../../src/config/configuration.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { decommissionMessage, markDecommissioned } from '../../../src/store/decommission-mark.ts';
import { MAIN } from '../../built-agent.ts';
import { runVerb } from './verb-run.ts';

const ROOT = join(import.meta.dirname, '../../..');
const SHIPPED_TAGS = readFileSync(join(ROOT, 'config/tags.yaml'), 'utf8');

let sandbox: Sandbox;
let folder: string;
let config: string;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  folder = mkdtempSync(join(tmpdir(), 'tagferry-setup-'));
  config = join(folder, 'config');
});
afterEach(async () => {
  rmSync(folder, { recursive: true, force: true });
  await sandbox.stop();
});

/** Runs `setup` with these lines as standard input. */
function setUp(answers: readonly string[], ...flags: string[]): Promise<{ status: number | null; output: string }> {
  return new Promise((resolve) => {
    const environment = { ...process.env, STATE_DIR: join(folder, 'state') };
    const child = spawn(process.execPath, [MAIN, 'setup', '--config', config, ...flags], {
      env: environment,
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    child.on('close', (status) => resolve({ status, output }));
    child.stdin.end(`${answers.join('\n')}\n`);
  });
}

/** Loads the written configuration. */
function loadWritten() {
  return loadConfiguration({ directory: config, environment: {}, kinds: SOURCE_KINDS, actions: ACTION_KINDS });
}

const credentials = (password: string = SANDBOX_CREDENTIALS.technicalPassword) => [
  sandbox.url,
  '',
  SANDBOX_CREDENTIALS.clientId,
  SANDBOX_CREDENTIALS.clientSecret,
  SANDBOX_CREDENTIALS.technicalUsername,
  password,
];

describe('setup', () => {
  it('returns a decommissioned gateway to service', async () => {
    const state = join(folder, 'state');
    mkdirSync(state);
    await markDecommissioned(state, Date.UTC(2026, 10, 21));
    expect(decommissionMessage(state)).toContain('2026-11-21');
    const { status, output } = await setUp([...credentials(), '', '', '']);
    expect(`${status} ${output}`).toMatch(/^0 [\s\S]*is in service again/);
    expect(decommissionMessage(state)).toBeUndefined();
  });

  it('creates a valid configuration in an empty folder, keeps comments, and stores secrets separately', async () => {
    const { status, output } = await setUp([...credentials(), '', '', 'PT-7', '882', '4712', 'Pressure', 'bar']);
    expect(`${status} ${output}`).toMatch(/^0 /);
    expect(output).toContain('Login successful');
    expect(output).toContain('asset 882 accepts values');
    expect(output).toContain(`tagferry run --config ${config}`);
    for (const secret of [SANDBOX_CREDENTIALS.clientSecret, SANDBOX_CREDENTIALS.technicalPassword]) {
      expect(output).not.toContain(secret);
      expect(readFileSync(join(config, 'agent.env'), 'utf8')).not.toContain(secret);
    }
    expect(statSync(join(config, 'credentials/client_secret')).mode & 0o777).toBe(0o600);
    const env = readFileSync(join(config, 'agent.env'), 'utf8');
    expect(env).toContain('# Maximum time before a live value is posted.\n#POST_INTERVAL=10s\n');
    const { settings, tags } = loadWritten();
    expect(settings).toMatchObject({
      platformUrl: sandbox.url,
      clientSecret: SANDBOX_CREDENTIALS.clientSecret,
      technicalPassword: SANDBOX_CREDENTIALS.technicalPassword,
    });
    expect([...tags.tags.keys()]).toEqual(['PT-7']);
    const tag = tags.tags.get('PT-7')!;
    expect(tag).toMatchObject({ asset: 882, instrumentation: 4712 });
    expect(tag.values.get('pressure')).toMatchObject({ unit: { code: 'bar' } });
    const kept = SHIPPED_TAGS.split('\n').filter((line) => line.trim().startsWith('#'));
    const text = readFileSync(join(config, 'tags.yaml'), 'utf8');
    for (const comment of kept) expect(text).toContain(comment);
    expect(existsSync(join(config, 'schema/tags.schema.json'))).toBe(true);
    expect(sandbox.tokens.counts()).toEqual({ issued: 1, revoked: 1, alive: 0 });
    const environment = { STATE_DIR: join(folder, 'state') };
    const doctor = await runVerb(['doctor', '--json', '--config', config], environment);
    expect(JSON.parse(doctor.stdout)).toMatchObject({ ok: true });
    expect((await runVerb(['check', '--config', config], environment)).status).toBe(0);
  });

  describe('with a tag or serial number instead of an id', () => {
    function remember(...named: (ObjectNames & { kind: ObjectKind; id: number })[]): void {
      mkdirSync(join(folder, 'state'), { mode: 0o700 });
      const database = openDatabase(join(folder, 'state/inbox.db'));
      const table = new AccessTable(database);
      table.open();
      const occurredAtMs = Date.UTC(2026, 10, 21);
      const where = { gone: false, occurredAtMs, wallMs: occurredAtMs, cursor: 1, related: [], isDoubtful: false };
      for (const { kind, id, ...names } of named) table.apply({ object: kind, id, names, ...where });
      database.close();
    }
    const objectsOf = () => {
      const { tags } = loadWritten();
      const { asset, instrumentation } = tags.tags.get('PT-7') ?? {};
      return { asset, instrumentation };
    };
    const answers = (...objects: string[]) => [...credentials(), '', '', 'PT-7', ...objects, 'pressure', 'bar'];

    it('selects the only known object with that name, and offers several by number', async () => {
      remember(
        { kind: 'asset', id: 882, serialNumber: 'SN-882' },
        { kind: 'asset', id: 883, serialNumber: 'SN-8820' },
        { kind: 'instrumentation', id: 4712, tag: 'FT-102' },
        { kind: 'instrumentation', id: 4790, tag: 'FT-109' },
        { kind: 'node', id: 4711, tag: 'FT-100' },
      );
      const { status, output } = await setUp(answers('SN-9', 'sn-882', 'ft-10', '2'));
      expect(`${status} ${output}`).toMatch(/^0 /);
      expect(output).toContain('no known asset matches "SN-9"');
      expect(output).toContain('asset 882: SN-882, visible');
      expect(output).toMatch(/ 1 +4790 +FT-109, visible\n +2 +4712 +FT-102, visible\n/);
      expect(objectsOf()).toEqual({ asset: 882, instrumentation: 4712 });
    });

    it('offers the object whose serial number contains the digits of an id', async () => {
      remember({ kind: 'asset', id: 882, serialNumber: '883' });
      expect((await setUp(answers('883', '1', ''))).status).toBe(0);
      expect(objectsOf()).toEqual({ asset: 882, instrumentation: undefined });
      rmSync(config, { recursive: true });
      expect((await setUp(answers('883', '', ''))).status).toBe(0);
      expect(objectsOf()).toEqual({ asset: 883, instrumentation: undefined });
    });

    it('asks for the id if this gateway knows no objects yet', async () => {
      const { status, output } = await setUp(answers('SN-882', '882', ''));
      expect(`${status} ${output}`).toMatch(/^0 [\s\S]*no known asset matches "SN-882"\. Enter the ID/);
      expect(objectsOf()).toEqual({ asset: 882, instrumentation: undefined });
    });
  });

  it('replaces the example tag in a file from the package', async () => {
    mkdirSync(config);
    writeFileSync(join(config, 'tags.yaml'), SHIPPED_TAGS);
    writeFileSync(join(config, 'agent.env'), readFileSync(join(ROOT, 'config/agent.env')), { mode: 0o640 });
    const { status, output } = await setUp([...credentials(), '', '', 'PT-7', '882', '', 'p', '']);
    expect(`${status} ${output}`).toMatch(/^0 /);
    expect([...loadWritten().tags.tags.keys()]).toEqual(['PT-7']);
    expect(statSync(join(config, 'agent.env')).mode & 0o777).toBe(0o640);
  });

  it('writes nothing if the platform rejects the credentials', async () => {
    const { status, output } = await setUp([...credentials('wrong'), '', '', '']);
    expect(status).toBe(1);
    expect(output).toMatch(/invalid_grant.*TECHNICAL_PASSWORD/s);
    expect(existsSync(config)).toBe(false);
  });

  it('writes nothing if the address is unreachable, and suggests possible causes', async () => {
    const [, ...rest] = credentials();
    const { status, output } = await setUp(['http://127.0.0.1:9', ...rest, '', '', '']);
    expect(status).toBe(1);
    expect(output).toMatch(/ECONNREFUSED.*host and port of PLATFORM_URL/s);
    expect(existsSync(config)).toBe(false);
  });

  it('writes nothing if the input ends early', async () => {
    const { status, output } = await setUp(credentials().slice(0, 4));
    expect(`${status} ${output}`).toMatch(/^1 .*Nothing was written/s);
    expect(existsSync(config)).toBe(false);
  });

  it('repeats a question after an invalid answer', async () => {
    const { status, output } = await setUp(['not an address', ...credentials(), '', '', ''], '--no-login');
    expect(`${status} ${output}`).toMatch(/^0 .*"not an address" is/s);
    expect(sandbox.tokens.counts().issued).toBe(0);
    const { settings, tags } = loadWritten();
    expect(settings.platformUrl).toBe(sandbox.url);
    expect(tags.tags.size).toBe(0);
    expect(readFileSync(join(config, 'tags.yaml'), 'utf8')).toContain('#    asset: 881\n');
  });

  it('keeps an existing folder, and moves a secret out of agent.env', async () => {
    mkdirSync(config);
    const before = `# ours\nPLATFORM_URL=${sandbox.url}\nCLIENT_SECRET=old\nPOST_INTERVAL=3s # tuned\n`;
    writeFileSync(join(config, 'agent.env'), before, { mode: 0o600 });
    writeFileSync(join(config, 'tags.yaml'), 'tags:\n  # the old one\n  A-1: { asset: 881, values: { flow: {} } }\n');
    const { status, output } = await setUp(['', ...credentials().slice(1), '', '', 'B-2', '882', '', '', '12']);
    expect(`${status} ${output}`).toMatch(/^0 /);
    const env = readFileSync(join(config, 'agent.env'), 'utf8');
    expect(env).toContain('# ours\n');
    expect(env).toContain('POST_INTERVAL=3s # tuned\n');
    expect(env).not.toContain('old');
    expect(statSync(join(config, 'agent.env')).mode & 0o777).toBe(0o600);
    expect(readFileSync(join(config, 'tags.yaml'), 'utf8')).toContain('# the old one');
    const { settings, tags } = loadWritten();
    expect(settings.postIntervalMs).toBe(3000);
    expect([...tags.tags.keys()]).toEqual(['A-1', 'B-2']);
  });
});

describe('setup --answers', () => {
  const answersFile = () => join(folder, 'answers.env');
  /** Runs `setup --answers` with these lines in the file and as standard input. */
  function withAnswers(lines: readonly string[], input: readonly string[] = [], ...flags: string[]) {
    writeFileSync(answersFile(), `${lines.join('\n')}\n`, { mode: 0o644 });
    return setUp(input, '--answers', answersFile(), ...flags);
  }
  const PUBLIC = () => [
    `PLATFORM_URL=${sandbox.url}`,
    `CLIENT_ID=${SANDBOX_CREDENTIALS.clientId}`,
    `TECHNICAL_USERNAME=${SANDBOX_CREDENTIALS.technicalUsername}`,
  ];
  const FROM_INPUT = ['CLIENT_SECRET_FILE=-', 'TECHNICAL_PASSWORD_FILE=-'];
  const SECRETS = [SANDBOX_CREDENTIALS.clientSecret, SANDBOX_CREDENTIALS.technicalPassword];
  const TAG = ['FIRST_TAG=PT-7', 'FIRST_TAG_ASSET=882', 'FIRST_TAG_INSTRUMENTATION=4712', 'FIRST_TAG_UNIT=bar'];

  it('never prompts, accepts any agent.env key and secrets from standard input, and changes nothing in a second run', async () => {
    const lines = [...PUBLIC(), ...FROM_INPUT, 'POST_INTERVAL=3s', 'OPS_LISTEN=:9472', ...TAG];
    const { status, output } = await withAnswers(lines, SECRETS);
    expect(`${status} ${output}`).toMatch(/^0 /);
    for (const secret of SECRETS) expect(output).not.toContain(secret);
    const { settings, tags } = loadWritten();
    expect(settings).toMatchObject({ postIntervalMs: 3000, clientSecret: SECRETS[0], technicalPassword: SECRETS[1] });
    expect(settings.opsToken).toBeDefined();
    // The page address contains a command instead of the token, because others may read the output.
    expect(output).toMatch(/echo "http:\/\/localhost:9472\/#token=\$\(cat \S+credentials\/ops_token\)"/);
    expect(output).not.toContain(settings.opsToken);
    expect(tags.tags.get('PT-7')).toMatchObject({ asset: 882, instrumentation: 4712 });
    const files = ['agent.env', 'tags.yaml', 'credentials/client_secret', 'credentials/ops_token'];
    const read = () =>
      files.map((file) => [readFileSync(join(config, file), 'utf8'), statSync(join(config, file)).mtimeMs]);
    const before = read();
    const again = await withAnswers(lines, SECRETS);
    expect(`${again.status} ${again.output}`).toMatch(/^0 [\s\S]*Secrets are unchanged/);
    expect(read()).toEqual(before);
  });

  it('reads secrets from files, from systemd credentials, and from the answers file if only its owner can read it', async () => {
    writeFileSync(join(folder, 'secret'), `${SECRETS[0]}\n`);
    const credentialsFolder = join(folder, 'given');
    mkdirSync(credentialsFolder);
    writeFileSync(join(credentialsFolder, 'technical_password'), SECRETS[1]!);
    vi.stubEnv('CREDENTIALS_DIRECTORY', credentialsFolder);
    try {
      const { status, output } = await withAnswers([...PUBLIC(), 'CLIENT_SECRET_FILE=secret']);
      expect(`${status} ${output}`).toMatch(/^0 /);
    } finally {
      vi.unstubAllEnvs();
    }
    expect(sandbox.tokens.counts()).toEqual({ issued: 1, revoked: 1, alive: 0 });
    const open = await withAnswers([...PUBLIC(), `CLIENT_SECRET=${SECRETS[0]}`, `TECHNICAL_PASSWORD=${SECRETS[1]}`]);
    expect(`${open.status} ${open.output}`).toMatch(
      /^78 .*CLIENT_SECRET is in a file that other users can read[\s\S]*chmod 600/,
    );
    expect(open.output).not.toContain(SECRETS[0]);
    chmodSync(answersFile(), 0o600);
    const closed = await withAnswers([...PUBLIC(), `CLIENT_SECRET=${SECRETS[0]}`, `TECHNICAL_PASSWORD=${SECRETS[1]}`]);
    expect(closed.status).toBe(0);
  });

  it('reports every invalid answer with its line, writes nothing and exits with 78', async () => {
    const lines = [
      'PLATFORM_URL=no',
      'WEBHOOK_URL=http://gw.example.com/x',
      'FIRST_TAG=A',
      'FIRST_TAG_ASSET=x',
      'NO_SUCH=1',
    ];
    const { status, output } = await withAnswers(lines);
    expect(status).toBe(78);
    for (const [i, words] of ['PLATFORM_URL', 'is not https', '', 'FIRST_TAG_ASSET', 'NO_SUCH'].entries()) {
      if (words !== '') expect(output).toMatch(new RegExp(`answers\\.env:${i + 1}:\\d+: .*${words}`));
    }
    expect(existsSync(config)).toBe(false);
  });

  it('writes nothing that check rejects, and exits with 78', async () => {
    const source = ['FIRST_TAG_SOURCE=tcp://127.0.0.1:9', 'FIRST_TAG_ADDRESS=holding 70000'];
    const lines = [...PUBLIC(), ...FROM_INPUT, 'FIRST_TAG=A', 'FIRST_TAG_ASSET=882', ...source];
    const { status, output } = await withAnswers(lines, SECRETS, '--no-login');
    expect(`${status} ${output}`).toMatch(/^78 [\s\S]*tags\.yaml:\d+:\d+: .*70000[\s\S]*Nothing was written\./);
    expect(existsSync(config)).toBe(false);
  });

  it('prints no start command while check reports an error', async () => {
    mkdirSync(join(folder, 'state'));
    chmodSync(join(folder, 'state'), 0o1777);
    const { status, output } = await withAnswers([...PUBLIC(), ...FROM_INPUT], SECRETS, '--no-login');
    expect(status).toBe(78);
    expect(output).toContain(`  tagferry check --config ${config}\n`);
    expect(output).not.toMatch(/Next:|tagferry run/);
  });

  it('adds a value to an existing tag, and reports missing answers', async () => {
    mkdirSync(config);
    writeFileSync(join(config, 'tags.yaml'), 'tags:\n  PT-7: { asset: 882, values: { flow: { unit: 12 } } } # ours\n');
    const named = await withAnswers(['FIRST_TAG=PT-7', 'FIRST_TAG_ASSET=882'], []);
    expect(`${named.status} ${named.output}`).toMatch(
      /^78 [\s\S]*PLATFORM_URL is missing[\s\S]*CLIENT_SECRET is missing/,
    );
    expect(existsSync(join(config, 'agent.env'))).toBe(false);
    const lines = [...PUBLIC(), ...FROM_INPUT, 'FIRST_TAG=PT-7', 'FIRST_TAG_ASSET=882', 'FIRST_TAG_KEY=level'];
    expect((await withAnswers(lines, SECRETS)).status).toBe(0);
    const { tags } = loadWritten();
    expect([...tags.tags.get('PT-7')!.values.keys()]).toEqual(['flow', 'level']);
    expect(readFileSync(join(config, 'tags.yaml'), 'utf8')).toContain('# ours');
  });

  it('writes nothing if the platform rejects an answer, and exits with 1', async () => {
    const { status, output } = await withAnswers(
      [...PUBLIC(), ...FROM_INPUT, 'FIRST_TAG=A', 'FIRST_TAG_ASSET=99999'],
      SECRETS,
    );
    expect(`${status} ${output}`).toMatch(/^1 .*asset 99999 does not exist[\s\S]*Nothing was written/);
    const wrong = await withAnswers([...PUBLIC(), ...FROM_INPUT], [SECRETS[0]!, 'wrong']);
    expect(`${wrong.status} ${wrong.output}`).toMatch(/^1 .*invalid_grant/s);
    expect(existsSync(config)).toBe(false);
    expect(sandbox.tokens.counts().alive).toBe(0);
  });
});

describe('next command after setup', () => {
  afterEach(() => vi.unstubAllEnvs());

  it.each([
    [
      'masked',
      'LoadState=masked\nActiveState=inactive',
      1,
      'sudo systemctl unmask tagferry && sudo systemctl enable --now tagferry',
    ],
    ['active', 'LoadState=loaded\nActiveState=active', 0, 'sudo systemctl restart tagferry'],
    ['stopped and enabled', 'LoadState=loaded\nActiveState=inactive', 0, 'sudo systemctl start tagferry'],
    ['not enabled', 'LoadState=loaded\nActiveState=inactive', 1, 'sudo systemctl enable --now tagferry'],
  ])('matches a service that is %s', async (_state, properties, enabled, command) => {
    const program = `#!/bin/sh\n[ "$1" = enable ] && exit ${enabled}\nprintf '%s\\n' '${properties}'\n`;
    writeFileSync(join(folder, 'systemctl'), program, { mode: 0o755 });
    vi.stubEnv('PATH', `${folder}:${process.env.PATH}`);
    expect(await serviceStart()).toBe(command);
  });
});
