/** `tagferry setup` as a person meets it: on a terminal of 80 and of 40 columns, with a device that answers, with slips and second thoughts. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { loadConfiguration } from '../../src/config/configuration.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../src/sandbox/sandbox.ts';
import { SOURCE_KINDS } from '../../src/sources/kinds.ts';
import { StrictBroker } from '../broker/strict-broker.ts';
import { MAIN } from '../built-agent.ts';
import { Peer } from '../sources/modbus/peer.ts';
import { Terminal } from '../system/terminal.ts';

const { clientId, clientSecret, technicalUsername, technicalPassword } = SANDBOX_CREDENTIALS;
const SECRETS = [clientSecret, technicalPassword, 'not-the-password'];

let sandbox: Sandbox;
let folder: string;
let config: string;
let peer: Peer | undefined;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  folder = mkdtempSync(join(tmpdir(), 'tagferry-setup-terminal-'));
  config = join(folder, 'config');
});
afterEach(async () => {
  await peer?.end();
  peer = undefined;
  await sandbox.stop();
  rmSync(folder, { recursive: true, force: true });
});

function open(columns: number, ...flags: string[]): Terminal {
  const verb = [process.execPath, MAIN, 'setup', '--config', config, ...flags].join(' ');
  const child = spawn('script', ['-qefc', `stty cols ${columns} rows 24; ${verb}`, '/dev/null'], {
    env: { ...process.env, TERM: 'xterm', STATE_DIR: join(folder, 'state') },
  });
  return new Terminal(child);
}

/** A question, however its words are divided over lines. */
const asks = (words: string) => new RegExp(`${words.replaceAll(' ', '\\s+')}[\\s\\S]*(: |> )$`);

async function answerAll(terminal: Terminal, answers: readonly (readonly [string, string])[]): Promise<void> {
  for (const [question, answer] of answers) await terminal.answer(asks(question), answer);
}

const credentials = (password: string): [string, string][] => [
  ['Address of the API', sandbox.url],
  ['identity application', ''],
  ['API key', clientId],
  ['API secret', clientSecret],
  ['Name of the technical user', technicalUsername],
  ['Its password', password],
];

function expectFit(terminal: Terminal, columns: number): void {
  // A path or an address that is longer than the terminal stands on a line of its own.
  for (const line of terminal.lines)
    if (/\S\s+\S/.test(line.trim())) expect(line.length, line).toBeLessThanOrEqual(columns);
  for (const secret of SECRETS) expect(terminal.raw).not.toContain(secret);
}

const load = () => loadConfiguration({ directory: config, environment: {}, kinds: SOURCE_KINDS });

describe('setup on a terminal', () => {
  it('judges each answer before the next, keeps them when asked again, and ends with a value of a real device', async () => {
    const port = await freePort();
    peer = await Peer.tcp(port);
    const terminal = open(80);
    await answerAll(terminal, [
      ...credentials('not-the-password'),
      ['Answer again', 'y'],
      // Enter keeps what was answered, the secret too.
      ['Address of the API', ''],
      ['identity application', ''],
      ['API key', ''],
      ['Enter keeps the one that is there', ''],
      ['Name of the technical user', ''],
      ['Its password', technicalPassword],
      ['client application', 'no-such-application'],
      ['Answer again', 'y'],
      ['client application', '-'],
      ['webhook events', 'http://gateway.example.com/hook'],
      ['is not https[\\s\\S]*webhook events', 'https://gateway.example.com/hook'],
      ['first tag', 'PT-7'],
      ['asset number', '99999'],
      ['instrumentation number', ''],
      ['is not there, or may not be seen \\(404\\)[\\s\\S]*Answer again', 'y'],
      ['asset number', '882'],
      ['instrumentation number', ''],
      ['Key of its value', 'power'],
      ['Unit', '12'],
      ['Where does its value come from', 'http://plc'],
      ['is no address of a source[\\s\\S]*come from', `tcp://127.0.0.1:${port}`],
      ['Modbus unit', ''],
      ['Registers to look at first', 'holding 40003-40006'],
      ['Register of the value', 'holding 40004'],
      ['What it holds', 'float32'],
    ]);
    await terminal.shows(/1234\.5[\s\S]*1 of 1 value read/);
    // What is about to be written stands there before it is.
    await terminal.shows(
      /agent\.env:[\s\S]*PLATFORM_URL=[\s\S]*CLIENT_SECRET: new[\s\S]*OPS_TOKEN: new[\s\S]*register: holding 40004/,
    );
    expect(readdirSync(folder)).not.toContain('config');
    await answerAll(terminal, [
      ['Write this', 'a'],
      ...[...credentials(''), ['client application', ''], ['webhook events', ''], ['first tag', '']].map(
        ([question]): [string, string] => [question!, ''],
      ),
      ['asset number', ''],
      ['instrumentation number', ''],
      ['Key of its value', ''],
      ['Unit', ''],
      ['come from', ''],
      ['Modbus unit', ''],
      ['Registers to look at first', ''],
      ['Register of the value', 'holding 40004'],
      ['What it holds', 'float32'],
      ['Write this', 'y'],
    ]);
    expect(await terminal.ended(), terminal.text).toBe(0);
    expectFit(terminal, 80);
    const { settings, tags } = load();
    expect(settings).toMatchObject({ clientSecret, technicalPassword, webhookUrl: 'https://gateway.example.com/hook' });
    expect(settings.opsToken).toMatch(/^[\w-]{32}$/);
    expect(terminal.raw).not.toContain(settings.opsToken);
    expect(terminal.text).toContain('cat ');
    expect([...tags.sources.keys()]).toEqual(['plc1']);
    expect(tags.tags.get('PT-7')!.values.get('power')).toMatchObject({ unit: { id: 12 }, from: { source: 'plc1' } });
    expect(sandbox.tokens.counts().alive).toBe(0);
  });

  it('listens to a broker, offers what came, and ends with a value of its topic', async () => {
    const broker = new StrictBroker();
    const address = `mqtt://127.0.0.1:${await broker.start()}`;
    // The broker keeps both, so that they come whenever somebody listens.
    broker.publish('site/ft101', '{"temp":71.5,"state":"on"}', { retain: true });
    broker.publish('site/other', '12', { retain: true });
    try {
      const terminal = open(80, '--no-login');
      await answerAll(terminal, [
        ...credentials(technicalPassword),
        ['webhook events', ''],
        ['first tag', 'FT-101'],
        ['asset number', '881'],
        ['instrumentation number', ''],
        ['Key of its value', 'temperature'],
        ['Unit', '12'],
        ['come from', address.replace('//', '//gw:hunter2@')],
        ['has a password in it[\\s\\S]*password_file[\\s\\S]*come from', address],
        ['Topics to listen to', 'site/#'],
        // What was found stands above the question, and its first topic is what Enter takes.
        ['topic: "site/ft101", at: "/temp"[\\s\\S]*Topic of the value', ''],
        ['Where the number stands', ''],
        ['71\\.5[\\s\\S]*1 of 1 value read[\\s\\S]*Write this', 'y'],
      ]);
      expect(await terminal.ended(), terminal.text).toBe(0);
      expectFit(terminal, 80);
      expect(terminal.text.match(/hunter2/g)?.length).toBe(1);
    } finally {
      await broker.stop();
    }
    const { tags } = load();
    expect([...tags.sources]).toMatchObject([['broker', { kind: 'mqtt', spec: { url: address } }]]);
    expect(tags.tags.get('FT-101')!.values.get('temperature')).toMatchObject({ unit: { id: 12 } });
    expect(readFileSync(join(config, 'tags.yaml'), 'utf8')).toMatch(
      /from: broker, topic: "?site\/ft101"?, at: "?\/temp"?/,
    );
  });

  it('says what a device has against it, and writes it all the same for who says so', async () => {
    const terminal = open(80, '--no-login');
    await answerAll(terminal, [
      ...credentials(technicalPassword),
      ['webhook events', ''],
      ['first tag', 'PT-7'],
      ['asset number', '882'],
      ['instrumentation number', ''],
      ['Key of its value', ''],
      ['Unit', ''],
      ['come from', `tcp://127.0.0.1:${await freePort()}`],
      ['Modbus unit', ''],
      ['Registers to look at first', ''],
      ['Register of the value', ''],
      ['What it holds', ''],
      ['ECONNREFUSED[\\s\\S]*0 of 1 value read[\\s\\S]*Answer again', 'n'],
      ['Write this', 'y'],
    ]);
    expect(await terminal.ended(), terminal.text).toBe(0);
    expectFit(terminal, 80);
    expect([...load().tags.sources.keys()]).toEqual(['plc1']);
  });

  it('a second time changes nothing for Enter, in 40 columns; with --keep-secrets it does not ask for them', async () => {
    const first = open(40, '--no-login');
    await answerAll(first, [
      ...credentials(technicalPassword),
      ['webhook events', ''],
      ['first tag', ''],
      ['Write this', 'y'],
    ]);
    expect(await first.ended(), first.text).toBe(0);
    expectFit(first, 40);
    const files = ['agent.env', 'tags.yaml', 'credentials/client_secret', 'credentials/ops_token'];
    const before = files.map((file) => readFileSync(join(config, file), 'utf8'));
    const second = open(40, '--keep-secrets');
    await answerAll(second, [
      ['Address of the API', ''],
      ['identity application', ''],
      ['API key', ''],
      ['Name of the technical user', ''],
      ['client application', ''],
      ['webhook events', ''],
      ['first tag', ''],
      ['Write this', 'y'],
    ]);
    expect(await second.ended(), second.text).toBe(0);
    expect(second.text).toContain('kept as it is');
    expect(second.text).not.toContain('not shown');
    expect(files.map((file) => readFileSync(join(config, file), 'utf8'))).toEqual(before);
    expectFit(second, 40);
  });

  it('writes nothing where the summary is not what was meant', async () => {
    const terminal = open(80, '--no-login');
    await answerAll(terminal, [
      ...credentials(technicalPassword),
      ['webhook events', ''],
      ['first tag', ''],
      ['Write this', 'n'],
    ]);
    expect(await terminal.ended()).toBe(1);
    expect(terminal.text).toContain('Nothing was written');
    expect(readdirSync(folder)).not.toContain('config');
  });
});
