import { chmodSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../src/base/errors.ts';
import { configurationDirectory, loadConfiguration, readSettingsLeniently } from '../../src/config/configuration.ts';
import { stateDirectory } from '../../src/config/read-settings.ts';
import { KEY_NAMES, settingKey } from '../../src/config/setting-keys.ts';
import { SOURCE_KINDS } from '../../src/sources/kinds.ts';
import { check, ENOUGH, makeFolder } from './folder.ts';

const settingsOf = (lines: string, environment: Record<string, string> = {}) => {
  const { configuration, lines: problems } = check({ 'agent.env': lines }, { ...ENOUGH, ...environment });
  expect(configuration, problems.join('\n')).toBeDefined();
  return configuration!.settings;
};

describe('settings', () => {
  it('have the defaults of docs/interface.md where only what is required is given', () => {
    expect(settingsOf('', { STATE_DIRECTORY: '/srv/state' })).toEqual({
      platformUrl: 'https://api.example.com',
      identityUrl: 'https://api.example.com',
      clientId: 'key',
      clientSecret: 'secret-of-the-key',
      technicalUsername: 'machine',
      technicalPassword: 'secret-of-the-machine',
      clientAuth: 'basic',
      pkceChallenge: 'base64url',
      apiKeyHeader: undefined,
      valuesPath: '/v1/assets/{asset_id}/values',
      postIntervalMs: 10_000,
      postMaxValues: 5000,
      postMaxBytes: 480_000,
      postSuccess: [204],
      postGzip: false,
      postConcurrency: 4,
      requestsPerMinute: 400,
      requestsPerDay: 0,
      drainOrder: 'live-first',
      backfillValuesPerSecond: 0,
      commitIntervalMs: 1000,
      commitValues: 1000,
      bufferMaxBytes: 2_147_483_648,
      bufferMaxAgeMs: 0,
      bufferMinFree: { share: 0.05 },
      bufferFull: 'drop-oldest',
      clockUntrusted: 'correct',
      ingestListen: { host: '127.0.0.1', port: 8470 },
      webhookListen: { host: '127.0.0.1', port: 8471 },
      opsListen: { host: '127.0.0.1', port: 8472 },
      webhookUrl: undefined,
      webhookSecret: undefined,
      webhookEvents: [
        'threshold_reached',
        'asset_appeared',
        'asset_disappeared',
        'instrumentation_appeared',
        'instrumentation_disappeared',
        'node_appeared',
        'node_disappeared',
      ],
      webhookTlsCert: undefined,
      webhookTlsKey: undefined,
      webhookAcceptSha1: false,
      webhookPollMs: 300_000,
      webhookReenable: 'failures',
      platformCa: undefined,
      httpsProxy: undefined,
      noProxy: undefined,
      ingestHosts: undefined,
      ingestPartial: false,
      ingestTagFrom: 'measurement',
      ingestKeyFrom: '{field}',
      ingestTlsCert: undefined,
      ingestTlsKey: undefined,
      opsToken: undefined,
      opsHosts: undefined,
      opsTlsCert: undefined,
      opsTlsKey: undefined,
      ingestToken: undefined,
      clientApplication: undefined,
      stateDir: '/srv/state',
      logLevel: 'info',
      logFormat: 'auto',
      configVersion: undefined,
    });
  });

  it('are read from agent.env, with comments, quotes and spaces', () => {
    const settings = settingsOf(
      [
        '\uFEFF# a comment',
        '; another',
        'export POST_INTERVAL = 2s   # how long',
        'API_KEY_HEADER="API-Key" # quoted',
        "NO_PROXY='a # b'",
        'INGEST_TOKEN=abc#def',
        'CLIENT_APPLICATION="say \\"hi\\" for \\$5 and \\\\"',
        'INGEST_LISTEN=',
        'WEBHOOK_ACCEPT_SHA1=yes',
        'BUFFER_FULL=Refuse-New\r',
        'WEBHOOK_EVENTS=asset_appeared, threshold_reached,asset_appeared',
        'WEBHOOK_PROPERTIES=asset_updated=status, product,status; event_created=eh.x;asset_values_created=*;',
        'PLATFORM_CA=',
      ].join('\n'),
    );
    expect(settings).toMatchObject({
      postIntervalMs: 2000,
      apiKeyHeader: 'API-Key',
      noProxy: 'a # b',
      ingestToken: 'abc#def',
      clientApplication: 'say "hi" for $5 and \\',
      ingestListen: undefined,
      webhookAcceptSha1: true,
      bufferFull: 'refuse-new',
      webhookEvents: ['asset_appeared', 'threshold_reached'],
      webhookProperties: { asset_updated: ['status', 'product'], event_created: ['eh.x'], asset_values_created: [] },
      platformCa: undefined,
    });
  });

  it('keep what a shell would take apart: = and # and quotes inside a value', () => {
    const settings = settingsOf('CLIENT_APPLICATION=a=b==\nINGEST_TOKEN=#x"y\'z#');
    expect(settings).toMatchObject({ clientApplication: 'a=b==', ingestToken: '#x"y\'z#' });
  });

  it('of the environment override agent.env, an empty one included; unknown ones there are nobody’s business', () => {
    const settings = settingsOf('POST_INTERVAL=2s\nCLIENT_APPLICATION=mine\n', {
      POST_INTERVAL: '3s',
      CLIENT_APPLICATION: '',
      POST_INTERVALL: 'x',
      PATH: '/bin',
    });
    expect(settings).toMatchObject({ postIntervalMs: 3000, clientApplication: undefined });
  });

  it('take addresses without their closing slash, and a proxy without its scheme', () => {
    const settings = settingsOf('IDENTITY_URL=https://id.example.com/app/\n', {
      PLATFORM_URL: 'https://api.example.com/base//',
      https_proxy: 'proxy.example:3128',
    });
    expect(settings).toMatchObject({
      platformUrl: 'https://api.example.com/base',
      identityUrl: 'https://id.example.com/app',
      httpsProxy: 'http://proxy.example:3128',
    });
  });

  it('may be required and empty everywhere only with a problem each, on the line where they belong', () => {
    const { errors } = check(
      { 'agent.env': '# x\nPLATFORM_URL=\n#CLIENT_ID=abc\nTECHNICAL_USERNAME= # none\nCLIENT_SECRET=""\n' },
      {},
    );
    expect(errors).toEqual([
      'DIR/agent.env:2: PLATFORM_URL is missing, write for example PLATFORM_URL=https://api.example.com',
      'DIR/agent.env:3: CLIENT_ID is missing, write CLIENT_ID=<the API key of the subscription>',
      'DIR/agent.env:4: TECHNICAL_USERNAME is missing, write TECHNICAL_USERNAME=<the name of the technical user>',
      'DIR/agent.env:5: CLIENT_SECRET is missing, write CLIENT_SECRET=<the API secret>, or CLIENT_SECRET_FILE=<file that holds it>',
      'DIR/agent.env:5: TECHNICAL_PASSWORD is missing, write TECHNICAL_PASSWORD=<the password of the technical user>, or TECHNICAL_PASSWORD_FILE=<file that holds it>',
    ]);
  });

  it('of plain http warn beyond loopback only', () => {
    const linesFor = (PLATFORM_URL: string) => check({}, { ...ENOUGH, PLATFORM_URL }).lines;
    expect(linesFor('http://127.0.0.1:9000')).toEqual([]);
    expect(linesFor('http://[::1]:9000')).toEqual([]);
    expect(linesFor('http://10.0.0.5:9000')).toEqual([
      'environment: warning: PLATFORM_URL "http://10.0.0.5:9000" sends passwords and tokens over the network in clear text, write https:// instead of http://',
    ]);
  });

  it('with a webhook address of a sandbox on this machine warn, elsewhere it must be https', () => {
    const local = check({ 'agent.env': 'WEBHOOK_URL=http://127.0.0.1:8471/webhook' });
    expect(local.errors).toEqual([]);
    expect(local.lines).toHaveLength(1);
    expect(local.configuration?.settings.webhookUrl).toBe('http://127.0.0.1:8471/webhook');
    expect(check({ 'agent.env': 'WEBHOOK_URL=http://gw.example/webhook' }).errors).toHaveLength(1);
  });

  it('need a token where values are taken from the network, and not on a socket', () => {
    expect(check({ 'agent.env': 'INGEST_LISTEN=0.0.0.0:8470' }).errors).toEqual([
      'DIR/agent.env:1: INGEST_LISTEN "0.0.0.0:8470" is open to the network, and INGEST_TOKEN is empty, set INGEST_TOKEN, or listen on 127.0.0.1',
    ]);
    expect(check({ 'agent.env': 'INGEST_LISTEN=0.0.0.0:8470\nINGEST_TOKEN=t' }).errors).toEqual([]);
    expect(check({ 'agent.env': 'INGEST_LISTEN=unix:/run/t/in.sock' }).errors).toEqual([]);
    expect(check({ 'agent.env': 'INGEST_LISTEN=localhost:8470' }).errors).toEqual([]);
    expect(check({ 'agent.env': 'OPS_HOSTS=gw.example.com' }).errors).toEqual([
      'DIR/agent.env:1: OPS_HOSTS is set, and OPS_TOKEN is empty: pages of other names could read the status, set OPS_TOKEN, or leave OPS_HOSTS empty',
    ]);
    const hosts = settingsOf('OPS_TOKEN=t\nOPS_HOSTS= GW.example.com., 192.0.2.7 ,\n').opsHosts;
    expect(hosts).toEqual(['gw.example.com', '192.0.2.7']);
    expect(check({ 'agent.env': 'INGEST_HOSTS=http://gw.example.com' }).errors).toHaveLength(1);
    expect(check({ 'agent.env': 'OPS_TLS_CERT=/none.pem' }).errors).toHaveLength(2);
  });

  it('take a post of 500 kB and not a byte more', () => {
    expect(check({ 'agent.env': 'POST_MAX_BYTES=500kB' }).errors).toEqual([]);
    expect(check({ 'agent.env': 'POST_MAX_BYTES=500001' }).errors).toEqual([
      'DIR/agent.env:1: POST_MAX_BYTES "500001" is more than the platform takes in one post (500kB), write 480kB, which leaves room for headers',
    ]);
  });

  it('may put all listeners on a port that the system chooses', () => {
    expect(check({ 'agent.env': 'INGEST_LISTEN=:0\nWEBHOOK_LISTEN=:0\nOPS_LISTEN=:0' }).lines).toEqual([]);
  });
});

describe('where a setting comes from', () => {
  const without = (key: keyof typeof ENOUGH) =>
    Object.fromEntries(Object.entries(ENOUGH).filter(([name]) => name !== key));

  it('may be a file named by KEY_FILE in agent.env, relative to the folder, without its last line feed', () => {
    const { configuration } = check(
      { 'agent.env': 'CLIENT_SECRET_FILE=secret\n', secret: 'from the file \r\n' },
      without('CLIENT_SECRET'),
    );
    expect(configuration?.settings.clientSecret).toBe('from the file ');
  });

  it('may be a file named by KEY_FILE in the environment', () => {
    const folder = makeFolder({ secret: 'other\n' });
    const { configuration } = check({}, { ...without('CLIENT_SECRET'), CLIENT_SECRET_FILE: join(folder, 'secret') });
    expect(configuration?.settings.clientSecret).toBe('other');
  });

  it('may be a systemd credential; an empty line in agent.env does not count', () => {
    const credentials = makeFolder({ client_secret: 'from systemd\n', unrelated: 'x' });
    const environment = { ...without('CLIENT_SECRET'), CREDENTIALS_DIRECTORY: credentials };
    const { configuration } = check({ 'agent.env': 'CLIENT_SECRET=\n' }, environment);
    expect(configuration?.settings.clientSecret).toBe('from systemd');
  });

  it('may not be two of the three; the problem names both', () => {
    const credentials = makeFolder({ technical_password: 'a', client_secret: 'b' });
    const { errors } = check(
      { 'agent.env': 'CLIENT_SECRET=c\nCLIENT_ID_FILE=id\n', id: 'x' },
      { ...without('CLIENT_SECRET'), CREDENTIALS_DIRECTORY: credentials },
    );
    expect(errors).toEqual([
      'DIR/agent.env:1: CLIENT_SECRET comes from CLIENT_SECRET (DIR/agent.env:1) and the systemd credential client_secret, keep one of them (a removed credential requires a restart of the service)',
      'DIR/agent.env:2: CLIENT_ID comes from CLIENT_ID (environment) and CLIENT_ID_FILE (DIR/agent.env:2), keep one of them',
      'environment: TECHNICAL_PASSWORD comes from TECHNICAL_PASSWORD (environment) and the systemd credential technical_password, keep one of them (a removed credential requires a restart of the service)',
    ]);
  });

  it('is reported where the file is missing, empty or holds more than a value', () => {
    const files = {
      'agent.env':
        'CLIENT_SECRET_FILE=gone\nCLIENT_ID_FILE=empty\nTECHNICAL_USERNAME_FILE=two\nTECHNICAL_PASSWORD_FILE=.\n',
      empty: '\n',
      two: 'a\nb\n',
    };
    expect(check(files, { PLATFORM_URL: 'https://h' }).errors).toEqual([
      'DIR/agent.env:1: CLIENT_SECRET_FILE: gone does not exist, create it, or name the file that holds the value',
      'DIR/agent.env:2: CLIENT_ID_FILE: empty is empty, write the value into it',
      'DIR/agent.env:3: TECHNICAL_USERNAME_FILE: two holds more than one line of text, leave only the value in it',
      'DIR/agent.env:4: TECHNICAL_PASSWORD_FILE: . cannot be read: it is a folder, put a file in its place',
    ]);
  });

  it('may be a credential that is the PEM file itself, which then stands for its own path', () => {
    const pem = '-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n';
    const credentials = makeFolder({ webhook_tls_cert: pem, webhook_tls_key: pem });
    const { configuration } = check(
      { 'agent.env': 'PLATFORM_CA=ca.pem\n', 'ca.pem': pem },
      { ...ENOUGH, CREDENTIALS_DIRECTORY: credentials },
    );
    expect(configuration?.settings.webhookTlsCert).toBe(join(credentials, 'webhook_tls_cert'));
    expect(configuration?.settings.platformCa).toMatch(/ca\.pem$/);
  });
});

describe('secrets', () => {
  const SECRET = 'hunter2-hunter2';

  it('never stand in a problem, whatever is wrong with them', () => {
    const secretKeys = KEY_NAMES.filter((key) => settingKey(key).secret);
    expect(secretKeys).toEqual([
      'CLIENT_SECRET',
      'TECHNICAL_PASSWORD',
      'HTTPS_PROXY',
      'INGEST_TOKEN',
      'OPS_TOKEN',
      'WEBHOOK_SECRET',
    ]);
    const folder = makeFolder({ secret: SECRET });
    for (const key of secretKeys) {
      for (const broken of [
        `${key}="${SECRET}`,
        `${key}=${SECRET} and ${SECRET}\n${key}=${SECRET}`,
        `${key}=${SECRET}\n${SECRET}==`,
        `${key}=a\n${SECRET}`,
        `${key}=ftp://u:${SECRET}@host`,
        `${key}=${SECRET}\u0001`,
        `${key}=${SECRET}\n${key}_FILE=${folder}/secret`,
        `${key}=${SECRET.repeat(500)}`,
        `PLATFORM_URL=https://u:${SECRET}@host`,
      ]) {
        const { problems } = check({ 'agent.env': broken }, {});
        expect(JSON.stringify(problems), broken.slice(0, 60)).not.toContain('hunter2');
      }
    }
  });

  it('warn where others may read them', () => {
    const folder = makeFolder({ 'agent.env': 'CLIENT_SECRET=x\n', 'tags.yaml': 'tags: { T: { asset: 1 } }' });
    chmodSync(join(folder, 'agent.env'), 0o644);
    const { CLIENT_SECRET: _, ...environment } = ENOUGH;
    expect(loadConfiguration({ directory: folder, environment, kinds: SOURCE_KINDS }).warnings).toEqual([
      `${folder}/agent.env:1:1: warning: it holds secrets that others may read (mode 0644), run: chmod 600 ${folder}/agent.env`,
    ]);
    chmodSync(join(folder, 'agent.env'), 0o600);
    expect(loadConfiguration({ directory: folder, environment, kinds: SOURCE_KINDS }).warnings).toEqual([]);
  });

  it('warn in a file of KEY_FILE and in the address of a broker alike', () => {
    const folder = makeFolder(
      {
        'agent.env': 'CLIENT_SECRET_FILE=s\n',
        s: 'x',
        'tags.yaml':
          'tags: { T: { asset: 1, values: { v: { from: b, topic: t } } } }\nsources:\n  b: { mqtt: "mqtt://u:pw@h" }\n',
      },
      0o644,
    );
    const { CLIENT_SECRET: _, ...environment } = ENOUGH;
    const { warnings } = loadConfiguration({ directory: folder, environment, kinds: SOURCE_KINDS });
    expect(warnings.map((line) => line.replaceAll(folder, 'DIR'))).toEqual([
      'DIR/s:1:1: warning: it holds secrets that others may read (mode 0644), run: chmod 600 DIR/s',
      'DIR/tags.yaml:3:15: warning: it holds secrets that others may read (mode 0644), run: chmod 600 DIR/tags.yaml',
    ]);
  });

  it('warn in the key of a certificate and in the headers of a reaction as well, and not in a comment', () => {
    const rule = (headers: string) =>
      `reactions:\n  - { name: r, on: "*", do: [{ post: "http://h", headers: ${headers} }] }\n# Authorization: Bearer x\n`;
    const folder = makeFolder({
      'agent.env': 'WEBHOOK_TLS_CERT=c.pem\nWEBHOOK_TLS_KEY=k.pem\n',
      'c.pem': '-----BEGIN CERTIFICATE-----\n',
      'k.pem': '-----BEGIN EC PRIVATE KEY-----\n',
      'tags.yaml': 'tags: { T: { asset: 1 } }',
      'reactions.yaml': rule('{ X-Mark: north }'),
    });
    const warnings = () =>
      loadConfiguration({ directory: folder, environment: ENOUGH, kinds: SOURCE_KINDS }).warnings.map((line) =>
        line.replaceAll(folder, 'DIR'),
      );
    chmodSync(join(folder, 'reactions.yaml'), 0o644);
    expect(warnings()).toEqual([]);
    writeFileSync(join(folder, 'reactions.yaml'), rule('{ Authorization: Bearer x }'));
    chmodSync(join(folder, 'k.pem'), 0o640);
    expect(warnings()).toEqual([
      'DIR/k.pem:1:1: warning: it holds secrets that others may read (mode 0640), run: chmod 600 DIR/k.pem',
      'DIR/reactions.yaml:2:61: warning: it holds secrets that others may read (mode 0644), run: chmod 600 DIR/reactions.yaml',
    ]);
  });

  it('or rules that anyone may write are warned of', () => {
    const folder = makeFolder({ 'reactions.yaml': 'reactions: []', 'tags.yaml': 'tags: { T: { asset: 1 } }' });
    chmodSync(join(folder, 'reactions.yaml'), 0o666);
    chmodSync(folder, 0o777);
    const { warnings } = loadConfiguration({ directory: folder, environment: ENOUGH, kinds: SOURCE_KINDS });
    expect(warnings).toEqual([
      `${folder}/reactions.yaml:1:1: warning: anyone on this machine may change it, run: chmod o-w ${folder}/reactions.yaml`,
      `${folder}: warning: anyone on this machine may change it, run: chmod o-w ${folder}`,
    ]);
  });
});

describe('an incomplete configuration', () => {
  it('throws with every problem as a whole line', () => {
    const folder = makeFolder({ 'agent.env': 'FOO=1\n', 'tags.yaml': 'tagz: {}\n' });
    const load = () => loadConfiguration({ directory: folder, environment: {}, kinds: SOURCE_KINDS });
    expect(load).toThrow(ConfigurationError);
    try {
      load();
    } catch (error) {
      const { problems, code } = error as ConfigurationError;
      expect(code).toBe('config.invalid');
      expect(problems).toHaveLength(7);
      for (const line of problems) expect(line).toMatch(/^\/.*\/(agent\.env|tags\.yaml):\d+:\d+: .+, .+$/);
    }
  });

  it('still gives the settings that are sound, read leniently', () => {
    const folder = makeFolder({ 'agent.env': 'STATE_DIR=/srv/t\nPOST_INTERVAL=soon\nLOG_LEVEL=debug\n' });
    const { settings, problems } = readSettingsLeniently({ directory: folder, environment: {} });
    expect(settings).toMatchObject({ stateDir: '/srv/t', logLevel: 'debug', bufferMaxBytes: 2_147_483_648 });
    expect(settings).not.toHaveProperty('postIntervalMs');
    expect(settings).not.toHaveProperty('platformUrl');
    expect(problems).toHaveLength(6);
  });

  it('gives a state folder even where there is no configuration folder', () => {
    const { settings } = readSettingsLeniently({ directory: '/nowhere/at/all', environment: { STATE_DIR: 'here' } });
    expect(settings.stateDir).toBe(resolve('here'));
  });
});

describe('folders', () => {
  it('the configuration folder is the option, the environment’s, /etc/tagferry, ./config, in this order', () => {
    const there = () => true;
    const nothing = () => false;
    expect(configurationDirectory('a', { TAGFERRY_CONFIG: 'b' }, there)).toBe('a');
    expect(configurationDirectory(undefined, { TAGFERRY_CONFIG: 'b' }, there)).toBe('b');
    expect(configurationDirectory(undefined, { TAGFERRY_CONFIG: '' }, there)).toBe('/etc/tagferry');
    expect(configurationDirectory(undefined, {}, nothing)).toBe('./config');
  });

  it('the state folder is the setting, systemd’s, /var/lib/tagferry, ./state, in this order', () => {
    const there = () => true;
    const nothing = () => false;
    expect(stateDirectory('/a', { STATE_DIRECTORY: '/b' }, there)).toBe('/a');
    expect(stateDirectory(undefined, { STATE_DIRECTORY: '/b:/c' }, there)).toBe('/b');
    expect(stateDirectory(undefined, {}, there)).toBe('/var/lib/tagferry');
    expect(stateDirectory(undefined, {}, nothing)).toBe(resolve('state'));
  });

  it('a configuration folder that is not there is one problem', () => {
    try {
      loadConfiguration({ directory: './nowhere', environment: ENOUGH, kinds: SOURCE_KINDS });
      expect.unreachable();
    } catch (error) {
      expect((error as ConfigurationError).problems).toEqual([
        './nowhere: there is no such configuration folder, create it, or name another: --config DIR',
      ]);
    }
  });
});
