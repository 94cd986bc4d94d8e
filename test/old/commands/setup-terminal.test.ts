/** `tagferry setup` on a terminal of 80 and 40 columns, with a real device, wrong answers and corrections. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { freePort } from '../../../src/base/port-claim.ts';
import { loadConfiguration } from '../../../src/config/configuration.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { MAIN } from '../../built-agent.ts';
import { Peer } from '../../e2e/harness/modbus-peer.ts';
import { Terminal } from '../../host/terminal.ts';
import { StrictBroker } from '../../unit/broker/strict-broker.ts';

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

/** Returns a pattern for a question that may be wrapped. */
const asks = (words: string) => new RegExp(`${words.replaceAll(' ', '\\s+')}[\\s\\S]*(: |> )$`);

async function answerAll(terminal: Terminal, answers: readonly (readonly [string, string])[]): Promise<void> {
  for (const [question, answer] of answers) await terminal.answer(asks(question), answer);
}

const credentials = (password: string): [string, string][] => [
  ['API URL', sandbox.url],
  ['Identity application', ''],
  ['API key', clientId],
  ['API secret', clientSecret],
  ['User name of the technical user', technicalUsername],
  ['Password of the technical user', password],
];

function expectFit(terminal: Terminal, columns: number): void {
  // A path or address longer than the terminal is on a separate line. Commands are never wrapped.
  const isCommand = (line: string) => /^ {2}(cat|echo|tagferry) /.test(line);
  for (const line of terminal.lines.filter((one) => !isCommand(one)))
    if (/\S\s+\S/.test(line.trim())) expect(line.length, line).toBeLessThanOrEqual(columns);
  for (const secret of SECRETS) expect(terminal.raw).not.toContain(secret);
}

const load = () =>
  loadConfiguration({ directory: config, environment: {}, kinds: SOURCE_KINDS, actions: ACTION_KINDS });

describe('setup on a terminal', () => {
  it('checks each answer before the next question, keeps valid answers, and ends with a value from a real device', async () => {
    const port = await freePort();
    peer = await Peer.tcp(port);
    const terminal = open(80);
    await answerAll(terminal, [
      ...credentials('not-the-password'),
      ['answer again', ''],
      // Enter keeps previous answers, including secrets.
      ['API URL', ''],
      ['Identity application', ''],
      ['API key', ''],
      ['press Enter to keep the stored one', ''],
      ['User name of the technical user', ''],
      ['Password of the technical user', technicalPassword],
      ['client application', 'no-such-application'],
      ['answer again', ''],
      ['client application', '-'],
      ['webhook events', 'http://gateway.example.com/hook'],
      ['is not https[\\s\\S]*webhook events', 'https://gateway.example.com/hook'],
      ['first tag', 'PT-7'],
      ['Asset number', '99999'],
      ['Instrumentation number', ''],
      ['does not exist or is not visible to the technical user \\(404\\)[\\s\\S]*answer again', ''],
      ['Asset number', '882'],
      ['Instrumentation number', ''],
      ['Value key', 'power'],
      ['Unit', '12'],
      ['Source of the value', 'http://plc'],
      ['is not a valid source address[\\s\\S]*Source of the value', `tcp://127.0.0.1:${port}`],
      ['Modbus device', ''],
      ['Register of the value', 'holding 40004'],
      ['Type of the value', 'float32'],
    ]);
    await terminal.shows(/1234\.5[\s\S]*1 of 1 value read/);
    // The summary precedes the confirmation.
    await terminal.shows(
      /agent\.env:[\s\S]*PLATFORM_URL=[\s\S]*CLIENT_SECRET: new[\s\S]*OPS_TOKEN: new[\s\S]*register: holding 40004/,
    );
    expect(readdirSync(folder)).not.toContain('config');
    await answerAll(terminal, [
      ['Write the configuration', 'a'],
      ...[...credentials(''), ['client application', ''], ['webhook events', ''], ['first tag', '']].map(
        ([question]): [string, string] => [question!, ''],
      ),
      ['Asset number', ''],
      ['Instrumentation number', ''],
      ['Value key', ''],
      ['Unit', ''],
      ['Source of the value', ''],
      ['Modbus device', ''],
      ['Register of the value', ''],
      ['Type of the value', ''],
      ['Write the configuration', 'y'],
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

  it('listens to a broker, offers the received topics, and ends with a value', async () => {
    const broker = new StrictBroker();
    const address = `mqtt://127.0.0.1:${await broker.start()}`;
    const publishing = setInterval(() => {
      broker.publish('site/ft101', '{"temp":71.5,"state":"on"}');
      broker.publish('site/other', '12');
    }, 200);
    try {
      const terminal = open(80, '--no-login');
      await answerAll(terminal, [
        ...credentials(technicalPassword),
        ['webhook events', ''],
        ['first tag', 'FT-101'],
        ['Asset number', '881'],
        ['Instrumentation number', ''],
        ['Value key', 'temperature'],
        ['Unit', '12'],
        ['Source of the value', address.replace('//', '//gw:hunter2@')],
        ['contains a password[\\s\\S]*password_file[\\s\\S]*Source of the value', address],
        ['Topics to listen to', 'site/#'],
        // The received topics precede the question, and Enter selects the first one.
        ['topic: "site/ft101", at: "/temp"[\\s\\S]*Topic of the value', ''],
        ['JSON pointer', ''],
        ['71\\.5[\\s\\S]*1 of 1 value read[\\s\\S]*Write the configuration', 'y'],
      ]);
      expect(await terminal.ended(), terminal.text).toBe(0);
      expectFit(terminal, 80);
      expect(terminal.text.match(/hunter2/g)?.length).toBe(1);
    } finally {
      clearInterval(publishing);
      await broker.stop();
    }
    const { tags } = load();
    expect([...tags.sources]).toMatchObject([['broker', { kind: 'mqtt', spec: { url: address } }]]);
    expect(tags.tags.get('FT-101')!.values.get('temperature')).toMatchObject({ unit: { id: 12 } });
    expect(readFileSync(join(config, 'tags.yaml'), 'utf8')).toMatch(
      /from: broker, topic: "?site\/ft101"?, at: "?\/temp"?/,
    );
  });

  it('reports a device error, and writes the source anyway after confirmation', async () => {
    const terminal = open(80, '--no-login');
    await answerAll(terminal, [
      ...credentials(technicalPassword),
      ['webhook events', ''],
      ['first tag', 'PT-7'],
      ['Asset number', '882'],
      ['Instrumentation number', ''],
      ['Value key', ''],
      ['Unit', ''],
      ['Source of the value', `tcp://127.0.0.1:${await freePort()}`],
      ['Modbus device', ''],
      ['Register of the value', ''],
      ['Type of the value', ''],
      ['ECONNREFUSED[\\s\\S]*0 of 1 value read[\\s\\S]*answer again', 'keep'],
      ['Write the configuration', 'y'],
    ]);
    expect(await terminal.ended(), terminal.text).toBe(0);
    expectFit(terminal, 80);
    expect([...load().tags.sources.keys()]).toEqual(['plc1']);
  });

  it('changes nothing in a second run at 40 columns if every answer is Enter, and skips secrets with --keep-secrets', async () => {
    const first = open(40, '--no-login');
    await answerAll(first, [
      ...credentials(technicalPassword),
      ['webhook events', ''],
      ['first tag', ''],
      ['Write the configuration', 'y'],
    ]);
    expect(await first.ended(), first.text).toBe(0);
    expectFit(first, 40);
    const files = ['agent.env', 'tags.yaml', 'credentials/client_secret', 'credentials/ops_token'];
    const before = files.map((file) => readFileSync(join(config, file), 'utf8'));
    const second = open(40, '--keep-secrets');
    await answerAll(second, [
      ['API URL', ''],
      ['Identity application', ''],
      ['API key', ''],
      ['User name of the technical user', ''],
      ['client application', ''],
      ['webhook events', ''],
      ['first tag', ''],
      ['Write the configuration', 'y'],
    ]);
    expect(await second.ended(), second.text).toBe(0);
    expect(second.text).toContain('unchanged');
    expect(second.text).not.toContain('not shown');
    expect(files.map((file) => readFileSync(join(config, file), 'utf8'))).toEqual(before);
    expectFit(second, 40);
  });

  it('repeats each question after a wrong answer, and writes the corrected values', async () => {
    const port = await freePort();
    peer = await Peer.tcp(port);
    mkdirSync(config);
    writeFileSync(join(config, 'tags.yaml'), 'tags:\n  A-1: { asset: 882, values: { flow: {} } }\n');
    const meant: [question: string, wrong: readonly string[], right: string][] = [
      ['API URL', ['', 'platform'], sandbox.url],
      ['Identity application', ['identity'], '-'],
      ['API key', [''], clientId],
      ['API secret', [''], clientSecret],
      ['User name of the technical user', [''], technicalUsername],
      ['Password of the technical user', [''], technicalPassword],
      ['webhook events', ['http://gateway.example.com/hook'], 'https://gateway.example.com/hook'],
      ['first tag', ['P'.repeat(300)], 'PT-7'],
      ['Asset number', ['', '0', 'flow', '9999999999999999'], '882'],
      ['Instrumentation number', ['-3', 'flow'], '-'],
      // The second answer is the key of another tag for the same asset.
      ['Value key', ['a b', 'flow'], 'power'],
      ['Unit', ['0'], '12'],
      ['Source of the value', ['http://plc', 'tcp://', 'tcp://127.0.0.1:99999'], `tcp://127.0.0.1:${port}`],
      ['Modbus device', ['x', '900'], '1'],
      ['Register of the value', ['tcp://…', 'holding 70000'], 'holding 40004'],
      ['Type of the value', ['7', 'float'], 'float32'],
    ];
    const terminal = open(80, '--no-login');
    const questions = meant.flatMap(([question, wrong, right]) =>
      [...wrong, right].map((answer): [string, string] => [question, answer]),
    );
    await answerAll(terminal, questions);
    await answerAll(terminal, [
      ['1234\\.5[\\s\\S]*1 of 1 value read[\\s\\S]*Write the configuration', 'x'],
      ['Write the configuration', 'y'],
    ]);
    expect(await terminal.ended(), terminal.text).toBe(0);
    const { settings, tags } = load();
    expect(settings).toMatchObject({
      platformUrl: sandbox.url,
      clientId,
      clientSecret,
      technicalUsername,
      technicalPassword,
      webhookUrl: 'https://gateway.example.com/hook',
    });
    expect(parse(readFileSync(join(config, 'tags.yaml'), 'utf8'))).toEqual({
      tags: {
        'A-1': { asset: 882, values: { flow: {} } },
        'PT-7': {
          asset: 882,
          values: { power: { unit: 12, from: 'plc1', register: 'holding 40004', type: 'float32' } },
        },
      },
      sources: { plc1: { modbus: `tcp://127.0.0.1:${port}`, unit: 1, every: '1s' } },
    });
    expect(tags.tags.get('PT-7')).toMatchObject({ asset: 882 });
    expect(terminal.text).toMatch(/Next:\n {2}tagferry run --config/);
  });

  /** Answers up to an asset that the platform rejects. */
  const unknownAsset = (): [string, string][] => [
    ...credentials(technicalPassword),
    ['client application', ''],
    ['webhook events', ''],
    ['first tag', 'PT-7'],
    ['Asset number', '999'],
    ['Instrumentation number', ''],
  ];

  it.for(['', 'a', 'flow', '999'])(
    'asks for another asset if the platform rejects one and the answer is "%s"',
    async (typed) => {
      const terminal = open(80);
      await answerAll(terminal, [
        ...unknownAsset(),
        ['answer again', typed],
        ['Asset number', '882'],
        ['Instrumentation number', ''],
        ['Value key', ''],
        ['Unit', ''],
        ['Source of the value', ''],
        ['Write the configuration', 'y'],
      ]);
      expect(await terminal.ended(), terminal.text).toBe(0);
      expect(load().tags.tags.get('PT-7')).toMatchObject({ asset: 882 });
    },
  );

  it('keeps an asset that the platform rejects if the answer is "keep"', async () => {
    const terminal = open(80);
    await answerAll(terminal, [
      ...unknownAsset(),
      ['answer again', 'keep'],
      ['Value key', ''],
      ['Unit', ''],
      ['Source of the value', ''],
      ['Write the configuration', 'y'],
    ]);
    expect(await terminal.ended(), terminal.text).toBe(0);
    expect(load().tags.tags.get('PT-7')).toMatchObject({ asset: 999 });
  });

  it('writes nothing if a file that it does not change contains an error', async () => {
    mkdirSync(config);
    writeFileSync(join(config, 'reactions.yaml'), 'reactions: 7\n');
    const terminal = open(80, '--no-login');
    await answerAll(terminal, [
      ...credentials(technicalPassword),
      ['webhook events', ''],
      ['first tag', ''],
      ['reactions\\.yaml:1:12[\\s\\S]*has errors', 'n'],
    ]);
    expect(await terminal.ended()).toBe(78);
    expect(terminal.text).toContain('Nothing was written.');
    expect(terminal.text).not.toContain('Next:');
    expect(readdirSync(config)).toEqual(['reactions.yaml']);
  });

  it.for(['API URL', 'Password of the technical user'])('exits with 130 on Ctrl-C at "%s"', async (question) => {
    const terminal = open(80, '--no-login');
    for (const [asked, answer] of credentials(technicalPassword)) {
      if (asked !== question) await terminal.answer(asks(asked), answer);
      else break;
    }
    await terminal.shows(asks(question));
    terminal.press('\u0003');
    expect(await terminal.ended(), terminal.text).toBe(130);
    expect(terminal.text).toMatch(/\nInterrupted\. Nothing was written\.\n+$/);
    expect(readdirSync(folder)).not.toContain('config');
  });

  it('prints the commands for the token and the page on one line each, and refers to the secret files in agent.env', async () => {
    const terminal = open(80, '--no-login');
    await answerAll(terminal, [
      ...credentials(technicalPassword),
      ['webhook events', ''],
      ['first tag', ''],
      ['Write the configuration', 'y'],
    ]);
    expect(await terminal.ended(), terminal.text).toBe(0);
    const { opsToken } = load().settings;
    const outputs = terminal.lines
      .filter((line) => /^ {2}(cat|echo) /.test(line))
      .map((line) => execFileSync('sh', ['-c', line], { encoding: 'utf8' }).trim());
    expect(outputs).toEqual([opsToken, expect.stringMatching(/^http:\/\/localhost:\d+\/#token=.{32}$/)]);
    const env = readFileSync(join(config, 'agent.env'), 'utf8');
    for (const name of ['client_secret', 'technical_password', 'ops_token'])
      expect(env).toContain(`\n${name.toUpperCase()}= # in ${join(config, 'credentials', name)}\n`);
  });

  it('writes nothing if the summary is declined', async () => {
    const terminal = open(80, '--no-login');
    await answerAll(terminal, [
      ...credentials(technicalPassword),
      ['webhook events', ''],
      ['first tag', ''],
      ['Write the configuration', 'n'],
    ]);
    expect(await terminal.ended()).toBe(1);
    expect(terminal.text).toContain('Nothing was written');
    expect(readdirSync(folder)).not.toContain('config');
  });
});
