import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { documentedFiles } from '../fixtures/documented-files.ts';
import { AgentProcess } from './harness/agent-process.ts';
import { CREDENTIALS, Platform } from './harness/platform.ts';
import { VALUE_TAGS, ValuePlant } from './harness/value-plant.ts';
import { runVerb } from './harness/verb.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, values: { flow: {} } }\n';
const NEW_TAGS = 'tags:\n  FT-102: { asset: 882, values: { flow: {} } }\n';

let platform: Platform;
let agent: AgentProcess;

beforeEach(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url, { tags: TAGS });
});
afterEach(async () => {
  await agent.dispose();
  await platform.stop();
});

function write(name: string, text: string): void {
  const path = join(agent.config, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text, { mode: 0o600 });
}
const remove = (name: string) => rmSync(join(agent.config, name));
const read = (name: string) => readFileSync(join(agent.config, name), 'utf8');
/** Removes a setting from agent.env. */
const unset = (key: string) => write('agent.env', read('agent.env').replace(new RegExp(`^${key}=.*\n`, 'm'), ''));

interface Configuration {
  files_digest: string | null;
  refused: { problems: string[] } | null;
  restart_needed: string[];
}
const configuration = async () => (await agent.status()).configuration as Configuration;
const isSignedIn = async () => (await agent.metric('tagferry_session_valid')) === 1;
async function pushTo(tag: string, headers: Record<string, string> = {}): Promise<number> {
  const body = JSON.stringify({ values: [{ tag, key: 'flow', value: 1 }] });
  const all = { 'Content-Type': 'application/json', ...headers };
  return (await agent.call(agent.ingest, '/v1/values', { body, headers: all })).status;
}

/** Sends SIGHUP and waits until the configuration is applied or rejected. */
async function hangUp(): Promise<'applied' | 'rejected'> {
  const outcomes = () => [agent.logged('config.reloaded').length, agent.logged('config.refused').length] as const;
  const [applied, rejected] = outcomes();
  agent.signal('SIGHUP');
  await agent.until(() => outcomes()[0] + outcomes()[1] > applied + rejected, 'the reload ends');
  return outcomes()[0] > applied ? 'applied' : 'rejected';
}

/** The mistakes that `check` prints: `file:line`, and the rest of the line. Warnings are omitted. */
function mistakesIn(output: string): { place: string; text: string }[] {
  const lines = [...output.matchAll(/^(.+?):(\d+):\d+: (.*)$/gm)];
  return lines
    .map(([, file, line, text]) => ({ place: `${file!.replace(`${agent.config}/`, '')}:${line}`, text: text! }))
    .filter(({ text }) => !text.startsWith('warning'));
}

describe('tagferry check', () => {
  /** Files with mistakes. The comment behind a mistake contains words of its report: the faulty name and its correction. */
  const FILES = {
    'agent.env': `POST_INTERVLA=1s # POST_INTERVLA POST_INTERVAL
POST_CONCURRENCY=many # POST_CONCURRENCY
INGEST_LISTEN=0.0.0.0:8470 # INGEST_LISTEN INGEST_TOKEN
CONFIG_VERSION=\${NO_SUCH_VARIABLE} # CONFIG_VERSION NO_SUCH_VARIABLE
PLATFORM_URL=https://platform.example
CLIENT_ID=gateway
CLIENT_SECRET=secret # CLIENT_SECRET_FILE agent.env:8
CLIENT_SECRET_FILE=secret
`,
    'agent.env.d/20-site.env': `# Settings of the site.
DRAIN_ORDER=newest # DRAIN_ORDER live-first
`,
    'tags.yaml': `sources:
  plc1: { modbus: "tcp://127.0.0.1:502", evry: 1s } # evry every
  tank: { simulate: true, every: soon } # soon
tags:
  FT-101: { aset: 881, values: { flow: {} } } # aset asset
  FT-102: { asset: 882, values: { flow: { from: plc2, register: holding 1 } } } # plc2 plc1
  FT-103: { asset: 883, values: { flow: { from: tank, shape: sinus } } } # sinus sine
`,
    'tags.d/line.yaml': `tags:
  FT-103: { asset: 884, values: { flow: {} } } # FT-103 tags.yaml:7
`,
    'reactions.yaml': `reactions:
  - { name: one, on: treshold_reached, do: [{ log: warn }] } # treshold_reached threshold_reached
  - { name: two, on: threshold_reached, do: [{ lgo: warn }] } # lgo log
  - { name: one, on: event_created, do: [{ log: warn }] } # one
  - { name: three, on: threshold_reached, if: { tag: FT-1O2 }, do: [{ log: warn }] } # FT-1O2 FT-102
`,
    'reactions.d/syntax.yaml': `reactions:
  - { name: four, on: threshold_reached # }
`,
  };

  it('lists the mistakes of all files in one run with file, line and correction, and exits with 78', async () => {
    for (const [name, text] of Object.entries(FILES)) write(name, text);
    const { status, stdout } = await runVerb(agent, 'check');
    expect(status).toBe(78);
    const mistakes = mistakesIn(stdout);
    const expected = Object.entries(FILES).flatMap(([name, text]) =>
      text.split('\n').flatMap((line, index) => {
        const words = /\S # (.+)$/.exec(line)?.[1]?.split(' ') ?? [];
        return words.map((word) => ({ place: `${name}:${index + 1}`, word }));
      }),
    );
    const isReported = ({ place, word }: { place: string; word: string }) =>
      mistakes.some((mistake) => mistake.place === place && mistake.text.includes(word));
    expect(expected.filter((one) => !isReported(one))).toEqual([]);
    expect(mistakes.map(({ place }) => place)).toContain('reactions.d/syntax.yaml:2');
    for (const key of ['TECHNICAL_USERNAME', 'TECHNICAL_PASSWORD']) {
      expect(mistakes.filter(({ place, text }) => place.startsWith('agent.env:') && text.includes(key))).toHaveLength(
        1,
      );
    }
  });
});

const ROOT = join(import.meta.dirname, '../..');
describe('configuration that tagferry check accepts', () => {
  it('is applied by a running agent, as each example of the documentation shows', async () => {
    await agent.start();
    const examples = documentedFiles();
    expect(examples.length).toBeGreaterThan(10);
    for (const { place, tags, reactions } of examples) {
      write('tags.yaml', tags);
      write('reactions.yaml', reactions);
      expect([place, await hangUp()]).toEqual([place, 'applied']);
    }
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  const shipped = (name: string) => readFileSync(join(ROOT, 'config', name), 'utf8');
  const inSite = () => {
    const { write_files: files } = parse(shipped('examples/cloud-init.yaml')) as {
      write_files: { path: string; content: string }[];
    };
    return files.find(({ path }) => path.endsWith('tags.d/site.yaml'))!.content;
  };
  const ANSIBLE = 'examples/ansible/roles/tagferry/templates/site.yaml.j2';
  it.each<[string, () => Record<string, string>]>([
    ['as shipped', () => ({ 'tags.yaml': shipped('tags.yaml'), 'reactions.yaml': shipped('reactions.yaml') })],
    [
      'for the sandbox',
      () => ({
        'agent.env': shipped('examples/sandbox/agent.env'),
        'tags.yaml': shipped('examples/sandbox/tags.yaml'),
        'reactions.yaml': shipped('examples/sandbox/reactions.yaml'),
        // The test replaces fixed addresses.
        'agent.env.d/test.env': `${read('agent.env')}WEBHOOK_URL=\n`,
      }),
    ],
    ['for cloud-init', () => ({ 'tags.d/site.yaml': inSite() })],
    ['for Ansible', () => ({ 'tags.d/site.yaml': shipped(ANSIBLE) })],
    [
      'with each kind of source',
      () => ({ 'tags.yaml': documentedFiles().find(({ tags }) => tags.includes('opcua:'))!.tags }),
    ],
  ])('starts the agent %s', async (_, files) => {
    // Placeholder of the examples for the environment of the service.
    for (const [name, text] of Object.entries(files())) write(name, text.replaceAll(`"\${TAGFERRY_ASSET}"`, '881'));
    expect(await runVerb(agent, 'check')).toMatchObject({
      status: 0,
      stderr: '',
      stdout: expect.stringContaining(': 0 problems'),
    });
    await agent.start();
    expect((await configuration()).refused).toBeNull();
    expect((await agent.call(agent.ops, '/readyz')).status).toBe(200);
  });

  it('merges drop-ins in alphabetical order and replaces placeholders', async () => {
    write('agent.env.d/10-site.env', `POST_MAX_VALUES=11\nCONFIG_VERSION=\${HOSTNAME}-one\n`);
    write('agent.env.d/20-gateway.env', 'POST_MAX_VALUES=3\nBUFFER_MAX_BYTES=64MiB\n');
    for (const ignored of ['30-old.env~', '.40-hidden.env', '50-new.env.dpkg-new']) {
      write(`agent.env.d/${ignored}`, 'BUFFER_MAX_BYTES=nonsense\n');
    }
    write('tags.d/line.yaml', NEW_TAGS);
    write('tags.d/.hidden.yaml', 'nonsense: [\n');
    remove('reactions.yaml');
    expect(await runVerb(agent, 'check')).toMatchObject({ status: 0 });
    await agent.start();
    expect(await configuration()).toMatchObject({ refused: null, version: `${hostname()}-one` });
    expect([await pushTo('FT-101'), await pushTo('FT-102')]).toEqual([204, 204]);
    expect(await agent.metric('tagferry_buffer_max_bytes')).toBe(64 * 1024 * 1024);
    const sizes: number[] = [];
    platform.onPost((_, keys) => sizes.push(keys.reduce((sum, { points }) => sum + points.length, 0)));
    const values = Array.from({ length: 20 }, (_, value) => ({ tag: 'FT-101', key: 'flow', value }));
    expect((await agent.push(values)).status).toBe(204);
    await agent.until(() => platform.counts(881).stored === 21, 'the values arrive');
    expect(Math.max(...sizes)).toBe(3);
    // A setting of a drop-in is in force until the file is removed.
    remove('agent.env.d/20-gateway.env');
    expect(await hangUp()).toBe('applied');
    expect(await agent.metric('tagferry_buffer_max_bytes')).not.toBe(64 * 1024 * 1024);
  });

  it('reads secrets from files and credentials, and a reload applies a corrected one', async () => {
    const credentials = join(agent.folder, 'credentials');
    mkdirSync(credentials);
    unset('CLIENT_SECRET');
    unset('TECHNICAL_PASSWORD');
    write('agent.env', `${read('agent.env')}TECHNICAL_PASSWORD_FILE=password\n`);
    write('password', 'wrong\n');
    writeFileSync(join(credentials, 'client_secret'), `${CREDENTIALS.clientSecret}\n`, { mode: 0o600 });
    await agent.start({ CREDENTIALS_DIRECTORY: credentials });
    await agent.until(async () => (await agent.metric('tagferry_session_refused')) === 1, 'the sign-in is rejected');
    expect(await pushTo('FT-101')).toBe(204);
    write('password', `${CREDENTIALS.technicalPassword}\n`);
    expect(await runVerb(agent, 'reload')).toMatchObject({ status: 0 });
    await agent.until(isSignedIn, 'the agent is signed in');
    await agent.until(() => platform.counts(881).stored === 1, 'the value arrives');
  });
});

describe('startup with a mistake in a file', () => {
  const MISTAKES = { 'tags.yaml': 'tags:\n  FT-101: { aset: 881 }\n', 'reactions.yaml': 'reactions: nonsense\n' };
  const makeMistakes = () => {
    for (const [name, text] of Object.entries(MISTAKES)) write(name, text);
    write('agent.env.d/site.env', 'POST_CONCURRENCY=many\n');
  };

  it('exits with 78 and logs all mistakes if the agent has never had valid files', async () => {
    makeMistakes();
    agent.launch({ STATE_DIRECTORY: agent.state });
    expect(await agent.ended()).toBe(78);
    for (const mistake of [/site\.env:1.*POST_CONCURRENCY/, /tags\.yaml:2.*asset/, /reactions\.yaml:1/]) {
      expect(agent.output).toMatch(mistake);
    }
    expect(agent.hasBeenReady).toBe(false);
  });

  it('uses the latest valid files and reports the mistakes, or exits with 78 with --strict', async () => {
    await agent.start({ STATE_DIRECTORY: agent.state });
    expect(await agent.end('SIGTERM')).toBe(0);
    makeMistakes();
    // Adds --strict to the command.
    agent.surroundings = ['sh', '-c', 'exec "$@" --strict', 'sh'];
    agent.launch({ STATE_DIRECTORY: agent.state });
    expect(await agent.ended()).toBe(78);
    agent.surroundings = [];
    await agent.start({ STATE_DIRECTORY: agent.state });
    expect(await pushTo('FT-101')).toBe(204);
    const { text, status } = await agent.call(agent.ops, '/healthz');
    expect(status).toBe(200);
    const { notes } = JSON.parse(text) as { notes: string[] };
    expect(notes.join('\n')).toMatch(/site\.env:1/);
    expect((await configuration()).refused!.problems.join('\n')).toMatch(
      /site\.env:1.*tags\.yaml:2.*reactions\.yaml:1/s,
    );
    await agent.until(() => platform.counts(881).stored === 1, 'the value arrives');
  });
});

describe('SIGHUP during startup', () => {
  /** Whether the process handles SIGHUP. */
  const isHandled = () => {
    const caught = /^SigCgt:\s+(\w+)$/m.exec(readFileSync(`/proc/${agent.pid}/status`, 'utf8'))?.[1];
    return (Number.parseInt(caught?.slice(-1) ?? '0', 16) & 1) === 1;
  };

  it.each([
    ['before the files are read', isHandled],
    ['after the files are read', () => agent.logged('agent.starting').length > 0],
  ])('%s is followed by one reload, and the new files are in force', async (_, isReached) => {
    agent.launch();
    await agent.until(isReached, 'the startup has begun');
    write('tags.yaml', NEW_TAGS);
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > 0, 'the files are reloaded');
    expect(agent.hasBeenReady).toBe(true);
    expect([await pushTo('FT-101'), await pushTo('FT-102')]).toEqual([422, 204]);
    expect((await configuration()).refused).toBeNull();
    expect(agent.logged('config.refused')).toEqual([]);
    expect(agent.logged('config.reloaded')).toHaveLength(1);
  });
});

describe('rejected reload', () => {
  it('leaves the previous configuration in force, and its mistakes are reported until they are corrected', async () => {
    await agent.start();
    const { files_digest: digest } = await configuration();
    write('tags.yaml', `${NEW_TAGS}  FT-103: { aset: 883 }\n`);
    write('agent.env.d/site.env', 'POST_INTERVAL=soon\nBUFFER_MAX_BYTES=64MiB\n');
    const outcomes = [await hangUp(), (await runVerb(agent, 'reload')).status];
    expect(outcomes).toEqual(['rejected', 1]);
    const { stderr } = await runVerb(agent, 'reload');
    const { refused, files_digest: now } = await configuration();
    const { text, status } = await agent.call(agent.ops, '/healthz');
    const logged = (agent.logged('config.refused').at(-1)!.problems as string[]).join('\n');
    expect((JSON.parse(text) as { notes: string[] }).notes.join('\n')).toMatch(/site\.env:1/);
    for (const report of [stderr, refused!.problems.join('\n'), logged]) {
      expect(report).toMatch(/site\.env:1/);
      expect(report).toMatch(/tags\.yaml:3/);
    }
    expect([status, now]).toEqual([200, digest]);
    expect(await agent.metric('tagferry_configuration_refused_since_seconds')).toBeGreaterThan(0);
    expect(await agent.metric('tagferry_buffer_max_bytes')).not.toBe(64 * 1024 * 1024);
    expect([await pushTo('FT-101'), await pushTo('FT-102')]).toEqual([204, 422]);
    await agent.until(() => platform.counts(881).stored === 1, 'the value arrives');

    write('tags.yaml', NEW_TAGS);
    write('agent.env.d/site.env', 'BUFFER_MAX_BYTES=64MiB\n');
    expect(await runVerb(agent, 'reload')).toMatchObject({ status: 0 });
    expect((await configuration()).refused).toBeNull();
    expect(await agent.metric('tagferry_configuration_refused_since_seconds')).toBe(0);
    expect([await pushTo('FT-101'), await pushTo('FT-102')]).toEqual([422, 204]);
  });
});

describe('FIFO or device in place of a file', () => {
  it('is rejected by a reload, and does not block the agent', async () => {
    await agent.start();
    const makers = [(path: string) => execFileSync('mkfifo', [path]), (path: string) => symlinkSync('/dev/zero', path)];
    for (const name of ['agent.env', 'tags.yaml', 'tags.d/more.yaml', 'reactions.yaml']) {
      const path = join(agent.config, name);
      const before = existsSync(path) ? readFileSync(path, 'utf8') : undefined;
      mkdirSync(dirname(path), { recursive: true });
      for (const make of makers) {
        rmSync(path, { force: true });
        make(path);
        expect(await hangUp()).toBe('rejected');
        const report = JSON.stringify(agent.logged('config.refused').at(-1));
        expect(report).toContain(name);
        expect(report).toContain('not a regular file');
      }
      remove(name);
      if (before !== undefined) write(name, before);
    }
    execFileSync('mkfifo', [join(agent.config, 'password')]);
    const broker = 'sources: { broker: { mqtt: "mqtt://127.0.0.1:1", username: u, password_file: password } }\n';
    write('tags.yaml', `${broker}tags: { T-1: { asset: 881, values: { n: { from: broker, topic: n } } } }\n`);
    expect(await hangUp()).toBe('applied');
    await agent.until(() => agent.logged('broker.away').length > 0, 'the password file is reported');
    expect(agent.logged('broker.away')[0]).toMatchObject({
      broker: 'broker',
      code: 'broker.file',
      error: expect.stringContaining('not a regular file'),
    });
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});

describe('accepted reload', () => {
  it('applies tags, sources, intervals, tokens and limits without losing a value in flight', async () => {
    agent.write(platform.url, { tags: `tags:\n${VALUE_TAGS}` });
    await agent.start();
    const plant = new ValuePlant(agent, 5);
    for (let round = 1; round <= 10; round++) {
      // Alternately with and without a source.
      const isOdd = round % 2 === 1;
      const source = isOdd ? 'sources:\n  sim: { simulate: true, every: 50ms }\n' : '';
      const values = isOdd ? `{ flow: {}, ramp-${round}: { from: sim, shape: ramp } }` : '{ flow: {} }';
      write('tags.yaml', `${source}tags:\n${VALUE_TAGS}  NEW-${round}: { asset: 887, values: ${values} }\n`);
      write('agent.env.d/site.env', `BUFFER_MAX_BYTES=${round}GB\n`);
      expect(await hangUp()).toBe('applied');
      expect([await pushTo(`NEW-${round}`), await pushTo(`NEW-${round - 1}`)]).toEqual([204, 422]);
      expect((await agent.status()).sources).toHaveLength(isOdd ? 1 : 0);
      expect(await agent.metric('tagferry_buffer_max_bytes')).toBe(round * 1e9);
      if (!isOdd) continue;
      await agent.until(() => platform.counts(887, `ramp-${round}`).stored > 0, 'the new source delivers');
    }
    await plant.stop();
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty');
    const { acknowledged, ...wrong } = plant.count(platform);
    expect(wrong).toEqual({ missing: 0, invented: 0, different: 0 });
    expect(acknowledged).toBeGreaterThan(0);

    write('agent.env.d/interval.env', 'POST_INTERVAL=1h\n');
    write('agent.env.d/token.env', 'INGEST_TOKEN=one-token\n');
    expect(await hangUp()).toBe('applied');
    expect(await pushTo('NEW-10')).toBe(401);
    const { stored } = platform.counts(887, 'flow');
    expect(await pushTo('NEW-10', { Authorization: 'Bearer one-token' })).toBe(204);
    expect(await agent.metric('tagferry_post_interval_seconds')).toBeGreaterThanOrEqual(3600);
    remove('agent.env.d/interval.env');
    expect(await hangUp()).toBe('applied');
    await agent.until(() => platform.counts(887, 'flow').stored === stored + 1, 'the value arrives');
  });

  it('names the settings that require a restart', async () => {
    await agent.start();
    write('agent.env.d/site.env', 'REQUESTS_PER_DAY=1000\nPOST_INTERVAL=300ms\n');
    const { status, stderr } = await runVerb(agent, 'reload');
    expect([status, /REQUESTS_PER_DAY/.test(stderr)]).toEqual([0, true]);
    expect((await configuration()).restart_needed).toEqual(['REQUESTS_PER_DAY']);
    expect(agent.logged('config.restart_needed').at(-1)).toMatchObject({ keys: ['REQUESTS_PER_DAY'] });
    expect(await agent.metric('tagferry_requests_day_limit')).toBe(0);
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    expect((await configuration()).restart_needed).toEqual([]);
    expect(await agent.metric('tagferry_requests_day_limit')).toBe(1000);
  });
});
