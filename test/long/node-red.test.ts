// Long: 2 min
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Mosquitto } from '../broker/mosquitto.ts';
import { AgentProcess } from '../process/agent-process.ts';

/** Recipe of docs/guide/sources.md, which users import into the editor. */
const FLOW = readFileSync(join(import.meta.dirname, '../../docs/guide/node-red-flow.json'), 'utf8');
const RECIPE = readFileSync(join(import.meta.dirname, '../../docs/guide/sources.md'), 'utf8');

/** Node-RED has 280 packages with 120 MB. They have a separate lock file and are installed only for this test. */
let installed: string;
beforeAll(() => {
  installed = mkdtempSync(join(tmpdir(), 'node-red-'));
  cpSync(join(import.meta.dirname, 'node-red'), installed, { recursive: true });
  execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: installed, stdio: 'ignore' });
}, 600_000);
afterAll(() => rmSync(installed, { recursive: true, force: true }));

let sandbox: Sandbox;
let broker: Mosquitto;
let agent: AgentProcess;
let nodeRed: ChildProcess | undefined;
let said = '';
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  broker = await Mosquitto.make();
  await broker.start();
});
afterEach(async () => {
  nodeRed?.kill('SIGKILL');
  await agent.dispose();
  await broker.dispose();
  await sandbox.stop();
});

/** Replaces the addresses of the recipe, and nothing else. */
async function startNodeRed(ingest: string): Promise<void> {
  const nodes = JSON.parse(FLOW) as Record<string, unknown>[];
  for (const node of nodes) {
    if (node.url === 'http://127.0.0.1:8470/v1/values') node.url = `http://${ingest}/v1/values`;
    if (node.broker === '127.0.0.1' && node.port === '1883') node.port = String(broker.port);
  }
  const folder = join(installed, 'user');
  cpSync(join(installed, 'package.json'), join(folder, 'package.json'));
  writeFileSync(join(folder, 'flows.json'), JSON.stringify(nodes));
  const settings = {
    flowFile: 'flows.json',
    uiHost: '127.0.0.1',
    uiPort: await freePort(),
    httpAdminRoot: false,
    telemetry: { enabled: false },
  };
  writeFileSync(join(folder, 'settings.js'), `module.exports = ${JSON.stringify(settings)};\n`);
  nodeRed = spawn(process.execPath, [join(installed, 'node_modules/node-red/red.js'), '--userDir', folder], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env.PATH, HOME: folder },
  });
  for (const stream of [nodeRed.stdout!, nodeRed.stderr!])
    stream.setEncoding('utf8').on('data', (text) => (said += text));
}

const numbers = (key: string) => sandbox.values.list(881, key).map(({ value }) => value);

it('readings from Node-RED arrive exactly once over HTTP and through a broker despite kill -9 of the agent', async () => {
  const ingest = `127.0.0.1:${await freePort()}`;
  // Tags in the recipe, with the broker of this test.
  const [tags] = /^sources:\n {2}plant:.*?(?=^```$)/ms.exec(RECIPE) ?? [''];
  expect(tags).toContain('mqtt://127.0.0.1:1883');
  agent = new AgentProcess(sandbox.url, {
    tags: tags.replace(':1883', `:${broker.port}`),
    env: { INGEST_LISTEN: ingest, COMMIT_INTERVAL: '500ms' },
  });
  await agent.start();
  await startNodeRed(ingest);
  const enough = (count: number) => () => {
    if (nodeRed!.exitCode !== null) throw new Error(`Node-RED has ended:\n${said}`);
    return numbers('flow').length >= count && numbers('level').length >= count;
  };
  await agent.until(enough(20), 'values arrive over both paths', 120_000);
  for (let blow = 0; blow < 2; blow++) {
    const before = Math.max(numbers('flow').length, numbers('level').length);
    await agent.end('SIGKILL');
    await agent.start();
    await agent.until(enough(before + 20), 'values arrive over both paths again', 60_000);
  }
  const over = once(nodeRed!, 'exit');
  nodeRed!.kill('SIGTERM');
  await over;
  await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty');
  for (const key of ['flow', 'level']) {
    const brought = numbers(key);
    // Values that Node-RED had not sent when it exited.
    const isHole = (_: number, at: number) => !brought.includes(at);
    const holes = Array.from({ length: Math.max(...brought) - 10 }, (_, at) => at).filter(isHole);
    expect([key, holes, brought.length - new Set(brought).size]).toEqual([key, [], 0]);
  }
}, 300_000);
