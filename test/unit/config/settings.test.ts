import { chmodSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../../src/base/errors.ts';
import { configurationDirectory, loadConfiguration, readSettingsLeniently } from '../../../src/config/configuration.ts';
import { stateDirectory } from '../../../src/config/read-settings.ts';
import { KEY_NAMES, settingKey } from '../../../src/config/setting-keys.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { check, ENOUGH, makeFolder } from './folder.ts';

const settingsOf = (lines: string, environment: Record<string, string> = {}) => {
  const { configuration, lines: problems } = check({ 'agent.env': lines }, { ...ENOUGH, ...environment });
  expect(configuration, problems.join('\n')).toBeDefined();
  return configuration!.settings;
};

describe('settings', () => {
  it.each(['2000-02-31', '2001-02-29T00:00:00Z', '2000-13-01'])('do not accept the nonexistent date %s', (date) => {
    const { lines } = check({ 'agent.env': `EARLIEST_TIME=${date}` }, ENOUGH);
    expect(lines).toEqual([expect.stringContaining('is not a time')]);
    expect(settingsOf('EARLIEST_TIME=2000-02-29').earliestTimeMs).toBe(Date.UTC(2000, 1, 29));
  });

  it('have the documented defaults if only required keys are set', () => {
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
      earliestTimeMs: Date.UTC(2000, 0, 1),
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
      writes: false,
      logLevel: 'info',
      logFormat: 'auto',
      configVersion: undefined,
    });
  });

  it('are read from agent.env with comments, quotes and spaces', () => {
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

  it('preserve =, # and quotes inside a value', () => {
    const settings = settingsOf('CLIENT_APPLICATION=a=b==\nINGEST_TOKEN=#x"y\'z#');
    expect(settings).toMatchObject({ clientApplication: 'a=b==', ingestToken: '#x"y\'z#' });
  });

  it('are overridden by the environment, even by an empty variable; unknown variables are ignored', () => {
    const settings = settingsOf('POST_INTERVAL=2s\nCLIENT_APPLICATION=mine\n', {
      POST_INTERVAL: '3s',
      CLIENT_APPLICATION: '',
      POST_INTERVALL: 'x',
      PATH: '/bin',
    });
    expect(settings).toMatchObject({ postIntervalMs: 3000, clientApplication: undefined });
  });

  it('accept addresses with a trailing slash, and a proxy without a scheme', () => {
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

  it('that are required but empty are each reported once, with their line', () => {
    const { errors } = check(
      { 'agent.env': '# x\nPLATFORM_URL=\n#CLIENT_ID=abc\nTECHNICAL_USERNAME= # none\nCLIENT_SECRET=""\n' },
      {},
    );
    expect(errors).toEqual([
      'DIR/agent.env:2: PLATFORM_URL is missing, add a line such as PLATFORM_URL=https://api.example.com',
      'DIR/agent.env:3: CLIENT_ID is missing, add CLIENT_ID=<the API key of the subscription>',
      'DIR/agent.env:4: TECHNICAL_USERNAME is missing, add TECHNICAL_USERNAME=<the name of the technical user>',
      'DIR/agent.env:5: CLIENT_SECRET is missing, add CLIENT_SECRET=<the API secret>, or CLIENT_SECRET_FILE=<file that contains it>',
      'DIR/agent.env:5: TECHNICAL_PASSWORD is missing, add TECHNICAL_PASSWORD=<the password of the technical user>, or TECHNICAL_PASSWORD_FILE=<file that contains it>',
    ]);
  });

  it('warn about plain http beyond loopback', () => {
    const linesFor = (PLATFORM_URL: string) => check({}, { ...ENOUGH, PLATFORM_URL }).lines;
    expect(linesFor('http://127.0.0.1:9000')).toEqual([]);
    expect(linesFor('http://[::1]:9000')).toEqual([]);
    expect(linesFor('http://10.0.0.5:9000')).toEqual([
      'environment: warning: PLATFORM_URL "http://10.0.0.5:9000" sends passwords and tokens over the network in clear text, use https:// instead of http://',
    ]);
  });

  it('warn about address ranges in NO_PROXY, which match no host', () => {
    const linesFor = (NO_PROXY: string) => check({}, { ...ENOUGH, NO_PROXY }).lines;
    expect(linesFor('localhost,.example.com,*.test,10.0.0.5:8443,[::1]:443,*')).toEqual([]);
    for (const range of ['10.0.0.0/8', 'fd00::/8', '192.168.', '10.1.*']) {
      expect(linesFor(`localhost, ${range}`)).toEqual([expect.stringContaining(`warning: NO_PROXY "${range}"`)]);
    }
  });

  it('warn about a webhook address on this machine unless the platform also runs here, and require https elsewhere', () => {
    const webhook = 'WEBHOOK_URL=http://127.0.0.1:8471/webhook';
    const remote = check({ 'agent.env': webhook });
    expect(remote.errors).toEqual([]);
    expect(remote.lines).toHaveLength(1);
    const local = check({ 'agent.env': webhook }, { ...ENOUGH, PLATFORM_URL: 'http://127.0.0.1:8480' });
    expect(local.lines).toEqual([]);
    expect(local.configuration?.settings.webhookUrl).toBe('http://127.0.0.1:8471/webhook');
    expect(check({ 'agent.env': 'WEBHOOK_URL=http://gw.example/webhook' }).errors).toHaveLength(1);
  });

  it('require a token for ingest from the network, but not for a socket', () => {
    expect(check({ 'agent.env': 'INGEST_LISTEN=0.0.0.0:8470' }).errors).toEqual([
      'DIR/agent.env:1: INGEST_LISTEN "0.0.0.0:8470" is reachable from the network, and INGEST_TOKEN is empty, set INGEST_TOKEN, or listen on 127.0.0.1',
    ]);
    expect(check({ 'agent.env': 'INGEST_LISTEN=0.0.0.0:8470\nINGEST_TOKEN=t' }).errors).toEqual([]);
    expect(check({ 'agent.env': 'INGEST_LISTEN=unix:/run/t/in.sock' }).errors).toEqual([]);
    expect(check({ 'agent.env': 'INGEST_LISTEN=localhost:8470' }).errors).toEqual([]);
    expect(check({ 'agent.env': 'OPS_HOSTS=gw.example.com' }).errors).toEqual([
      'DIR/agent.env:1: OPS_HOSTS is set, and OPS_TOKEN is empty: pages from those hosts could read the status, set OPS_TOKEN, or leave OPS_HOSTS empty',
    ]);
    const hosts = settingsOf('OPS_TOKEN=t\nOPS_HOSTS= GW.example.com., 192.0.2.7 ,\n').opsHosts;
    expect(hosts).toEqual(['gw.example.com', '192.0.2.7']);
    expect(check({ 'agent.env': 'INGEST_HOSTS=http://gw.example.com' }).errors).toHaveLength(1);
    expect(check({ 'agent.env': 'OPS_TLS_CERT=/none.pem' }).errors).toHaveLength(2);
  });

  it('allow posts of up to 500 kB', () => {
    expect(check({ 'agent.env': 'POST_MAX_BYTES=500kB' }).errors).toEqual([]);
    expect(check({ 'agent.env': 'POST_MAX_BYTES=500001' }).errors).toEqual([
      'DIR/agent.env:1: POST_MAX_BYTES "500001" exceeds the size that the platform accepts in one post (500kB), use 480kB, which leaves room for headers',
    ]);
  });

  it('allow the system to choose the ports of all listeners', () => {
    expect(check({ 'agent.env': 'INGEST_LISTEN=:0\nWEBHOOK_LISTEN=:0\nOPS_LISTEN=:0' }).lines).toEqual([]);
  });
});

describe('setting value', () => {
  const without = (key: keyof typeof ENOUGH) =>
    Object.fromEntries(Object.entries(ENOUGH).filter(([name]) => name !== key));

  it('is read from the file specified by KEY_FILE in agent.env, without the trailing line feed', () => {
    const { configuration } = check(
      { 'agent.env': 'CLIENT_SECRET_FILE=secret\n', secret: 'from the file \r\n' },
      without('CLIENT_SECRET'),
    );
    expect(configuration?.settings.clientSecret).toBe('from the file ');
  });

  it('is read from the file specified by KEY_FILE in the environment', () => {
    const folder = makeFolder({ secret: 'other\n' });
    const { configuration } = check({}, { ...without('CLIENT_SECRET'), CLIENT_SECRET_FILE: join(folder, 'secret') });
    expect(configuration?.settings.clientSecret).toBe('other');
  });

  it('is read from a systemd credential; an empty line in agent.env is ignored', () => {
    const credentials = makeFolder({ client_secret: 'from systemd\n', unrelated: 'x' });
    const environment = { ...without('CLIENT_SECRET'), CREDENTIALS_DIRECTORY: credentials };
    const { configuration } = check({ 'agent.env': 'CLIENT_SECRET=\n' }, environment);
    expect(configuration?.settings.clientSecret).toBe('from systemd');
  });

  it('is rejected if it is set in two places, and both are reported', () => {
    const credentials = makeFolder({ technical_password: 'a', client_secret: 'b' });
    const { errors } = check(
      { 'agent.env': 'CLIENT_SECRET=c\nCLIENT_ID_FILE=id\n', id: 'x' },
      { ...without('CLIENT_SECRET'), CREDENTIALS_DIRECTORY: credentials },
    );
    expect(errors).toEqual([
      'DIR/agent.env:1: CLIENT_SECRET comes from CLIENT_SECRET (DIR/agent.env:1) and the systemd credential client_secret, keep only one (a removed credential requires a restart of the service)',
      'DIR/agent.env:2: CLIENT_ID comes from CLIENT_ID (environment) and CLIENT_ID_FILE (DIR/agent.env:2), keep only one',
      'environment: TECHNICAL_PASSWORD comes from TECHNICAL_PASSWORD (environment) and the systemd credential technical_password, keep only one (a removed credential requires a restart of the service)',
    ]);
  });

  it('is reported if its file is missing or empty, or contains several values', () => {
    const files = {
      'agent.env':
        'CLIENT_SECRET_FILE=gone\nCLIENT_ID_FILE=empty\nTECHNICAL_USERNAME_FILE=two\nTECHNICAL_PASSWORD_FILE=.\n',
      empty: '\n',
      two: 'a\nb\n',
    };
    expect(check(files, { PLATFORM_URL: 'https://h' }).errors).toEqual([
      'DIR/agent.env:1: CLIENT_SECRET_FILE: gone does not exist, create it, or use another file that contains the value',
      'DIR/agent.env:2: CLIENT_ID_FILE: empty is empty, write the value into it',
      'DIR/agent.env:3: TECHNICAL_USERNAME_FILE: two contains more than one line of text, remove everything except the value',
      'DIR/agent.env:4: TECHNICAL_PASSWORD_FILE: . cannot be read: it is a folder, replace it with a file',
    ]);
  });

  it.each([
    [
      'a quoted secret',
      '"quoted"\n',
      '"quoted"',
      ['TECHNICAL_PASSWORD: the quotes are part of the value, remove them'],
    ],
    ['CRLF', 'plain\r\n', 'plain', []],
    ['a byte order mark', '\ufeffplain\n', 'plain', []],
    ['a quote at one end', '"plain\n', '"plain', []],
  ])('is used verbatim from a secret file with %s', (_, password, used, warnings) => {
    const files = { 'agent.env': 'TECHNICAL_PASSWORD_FILE=password\n', password };
    const { configuration, lines } = check(files, without('TECHNICAL_PASSWORD'));
    expect(configuration?.settings.technicalPassword).toBe(used);
    expect(lines).toEqual(warnings.map((line) => `DIR/password:1: warning: ${line}`));
    const CREDENTIALS_DIRECTORY = makeFolder({ technical_password: password });
    const loaded = check({}, { ...without('TECHNICAL_PASSWORD'), CREDENTIALS_DIRECTORY });
    expect(loaded.configuration?.settings.technicalPassword).toBe(used);
    expect(loaded.lines).toEqual(warnings.map((line) => `credential technical_password: warning: ${line}`));
  });

  it.each([
    ['quotes', "'quoted'", ': the quotes are part of the value, remove them from the --env-file or the environment'],
    ['CRLF', 'plain\r', ' ends with a carriage return, save the --env-file with LF line endings'],
  ])('is used verbatim from an --env-file with %s', (_, TECHNICAL_PASSWORD, warning) => {
    const { configuration, lines } = check({}, { ...ENOUGH, TECHNICAL_PASSWORD });
    expect(configuration?.settings.technicalPassword).toBe(TECHNICAL_PASSWORD);
    expect(lines).toEqual([`environment: warning: TECHNICAL_PASSWORD${warning}`]);
  });

  it('is reported as ignored if a byte order mark of an --env-file precedes its name', () => {
    const { errors } = check({}, { ...without('CLIENT_ID'), '\ufeffCLIENT_ID': 'key' });
    expect(errors).toContain(
      'environment: CLIENT_ID is ignored, because a byte order mark precedes its name, save the --env-file without a byte order mark',
    );
  });

  it('is the path of a credential that contains a PEM file', () => {
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

describe('secrets in the configuration', () => {
  const SECRET = 'hunter2-hunter2';

  it('never appear in a problem', () => {
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

  it('cause a warning if others can read them', () => {
    const folder = makeFolder({ 'agent.env': 'CLIENT_SECRET=x\n', 'tags.yaml': 'tags: { T: { asset: 1 } }' });
    chmodSync(join(folder, 'agent.env'), 0o644);
    const { CLIENT_SECRET: _, ...environment } = ENOUGH;
    expect(
      loadConfiguration({ directory: folder, environment, kinds: SOURCE_KINDS, actions: ACTION_KINDS }).warnings,
    ).toEqual([
      `${folder}/agent.env:1:1: warning: it contains secrets that other users can read (mode 0644), run: chmod 600 ${folder}/agent.env`,
    ]);
    chmodSync(join(folder, 'agent.env'), 0o600);
    expect(
      loadConfiguration({ directory: folder, environment, kinds: SOURCE_KINDS, actions: ACTION_KINDS }).warnings,
    ).toEqual([]);
  });

  it('cause a warning in KEY_FILE files and broker addresses', () => {
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
    const { warnings } = loadConfiguration({
      directory: folder,
      environment,
      kinds: SOURCE_KINDS,
      actions: ACTION_KINDS,
    });
    expect(warnings.map((line) => line.replaceAll(folder, 'DIR'))).toEqual([
      'DIR/s:1:1: warning: it contains secrets that other users can read (mode 0644), run: chmod 600 DIR/s',
      'DIR/tags.yaml:3:15: warning: it contains secrets that other users can read (mode 0644), run: chmod 600 DIR/tags.yaml',
    ]);
  });

  it('cause a warning in certificate keys and reaction headers, but not in comments', () => {
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
      loadConfiguration({
        directory: folder,
        environment: ENOUGH,
        kinds: SOURCE_KINDS,
        actions: ACTION_KINDS,
      }).warnings.map((line) => line.replaceAll(folder, 'DIR'));
    chmodSync(join(folder, 'reactions.yaml'), 0o644);
    expect(warnings()).toEqual([]);
    writeFileSync(join(folder, 'reactions.yaml'), rule('{ Authorization: Bearer x }'));
    chmodSync(join(folder, 'k.pem'), 0o640);
    expect(warnings()).toEqual([
      'DIR/k.pem:1:1: warning: it contains secrets that other users can read (mode 0640), run: chmod 600 DIR/k.pem',
      'DIR/reactions.yaml:2:61: warning: it contains secrets that other users can read (mode 0644), run: chmod 600 DIR/reactions.yaml',
    ]);
  });

  it('are reported if any user can write to their file', () => {
    const folder = makeFolder({ 'reactions.yaml': 'reactions: []', 'tags.yaml': 'tags: { T: { asset: 1 } }' });
    chmodSync(join(folder, 'reactions.yaml'), 0o666);
    chmodSync(folder, 0o777);
    const { warnings } = loadConfiguration({
      directory: folder,
      environment: ENOUGH,
      kinds: SOURCE_KINDS,
      actions: ACTION_KINDS,
    });
    expect(warnings).toEqual([
      `${folder}/reactions.yaml:1:1: warning: any user on this machine can change it, run: chmod o-w ${folder}/reactions.yaml`,
      `${folder}: warning: any user on this machine can change it, run: chmod o-w ${folder}`,
    ]);
  });
});

describe('incomplete configuration', () => {
  it('causes an error that lists every problem on a complete line', () => {
    const folder = makeFolder({ 'agent.env': 'FOO=1\n', 'tags.yaml': 'tagz: {}\n' });
    const load = () =>
      loadConfiguration({ directory: folder, environment: {}, kinds: SOURCE_KINDS, actions: ACTION_KINDS });
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

  it('yields the valid settings if it is read leniently', () => {
    const folder = makeFolder({ 'agent.env': 'STATE_DIR=/srv/t\nPOST_INTERVAL=soon\nLOG_LEVEL=debug\n' });
    const { settings, problems } = readSettingsLeniently({ directory: folder, environment: {} });
    expect(settings).toMatchObject({ stateDir: '/srv/t', logLevel: 'debug', bufferMaxBytes: 2_147_483_648 });
    expect(settings).not.toHaveProperty('postIntervalMs');
    expect(settings).not.toHaveProperty('platformUrl');
    expect(problems).toHaveLength(6);
  });

  it('yields a state folder even without a configuration folder', () => {
    const { settings } = readSettingsLeniently({ directory: '/nowhere/at/all', environment: { STATE_DIR: 'here' } });
    expect(settings.stateDir).toBe(resolve('here'));
  });
});

describe('folder selection', () => {
  it('uses the option, the environment variable, /etc/tagferry or ./config for the configuration, in this order', () => {
    const there = () => true;
    const nothing = () => false;
    expect(configurationDirectory('a', { TAGFERRY_CONFIG: 'b' }, there)).toBe('a');
    expect(configurationDirectory(undefined, { TAGFERRY_CONFIG: 'b' }, there)).toBe('b');
    expect(configurationDirectory(undefined, { TAGFERRY_CONFIG: '' }, there)).toBe('/etc/tagferry');
    expect(configurationDirectory(undefined, {}, nothing)).toBe('./config');
  });

  it('uses the setting, the systemd folder, /var/lib/tagferry or ./state for the state, in this order', () => {
    const there = () => true;
    const nothing = () => false;
    expect(stateDirectory('/a', { STATE_DIRECTORY: '/b' }, there)).toBe('/a');
    expect(stateDirectory(undefined, { STATE_DIRECTORY: '/b:/c' }, there)).toBe('/b');
    expect(stateDirectory(undefined, {}, there)).toBe('/var/lib/tagferry');
    expect(stateDirectory(undefined, {}, nothing)).toBe(resolve('state'));
  });

  it('resolves a relative STATE_DIR in agent.env against the configuration folder', () => {
    const folder = makeFolder({ 'agent.env': 'STATE_DIR=data\n' });
    expect(readSettingsLeniently({ directory: folder, environment: {} }).settings.stateDir).toBe(join(folder, 'data'));
  });

  it('reports a missing configuration folder as one problem', () => {
    try {
      loadConfiguration({ directory: './nowhere', environment: ENOUGH, kinds: SOURCE_KINDS, actions: ACTION_KINDS });
      expect.unreachable();
    } catch (error) {
      expect((error as ConfigurationError).problems).toEqual([
        './nowhere: the configuration folder does not exist, create it, or specify another: --config DIR',
      ]);
    }
  });
});
