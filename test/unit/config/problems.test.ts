import { describe, expect, it } from 'vitest';
import { check, ENOUGH, misplaced } from './folder.ts';

/** Each case: a broken file, and exactly the lines that `check` prints for it. */
type Case = [title: string, text: string | Uint8Array, ...lines: string[]];

function expectLines(file: string, more: Record<string, string>, cases: readonly Case[]): void {
  it.each(cases)('reports %s', (_, text, ...lines) => {
    const files = { ...more, [file]: text };
    const checked = check(files);
    expect(checked.lines).toEqual(lines.map((line) => `DIR/${file}:${line}`));
    expect(misplaced(files, checked)).toEqual([]);
  });
}

describe('check of agent.env', () => {
  expectLines('agent.env', {}, [
    ['a misspelt key', '# x\nPOST_INTERVALL=1s\n', '2: POST_INTERVALL is not a known key, use POST_INTERVAL'],
    [
      'a misspelt _FILE',
      'CLIENT_SECRETS_FILE=x\n',
      '1: CLIENT_SECRETS_FILE is not a known key, use CLIENT_SECRET_FILE',
    ],
    ['a key in lower case', 'log_level=info\n', '1: log_level is not a known key, use LOG_LEVEL'],
    ['an unrelated key', 'TZ=UTC\n', '1: TZ is not a known key, remove it (the nearest known is WRITES)'],
    ['a line without a key', 'hello world\n', '1: this is not a KEY=value line, use KEY=value, or # before a comment'],
    ['a duplicate key', 'LOG_LEVEL=info\n\nLOG_LEVEL=warn\n', '3: LOG_LEVEL is already set on line 1, keep only one'],
    [
      'a duration without a unit',
      'POST_INTERVAL=10',
      '1: POST_INTERVAL "10" has no unit, use 10s for seconds or 10ms for milliseconds',
    ],
    [
      'an invalid duration',
      'WEBHOOK_POLL=often',
      '1: WEBHOOK_POLL "often" is not a duration, use 500ms, 10s, 5m, 24h or 7d',
    ],
    ['a duration above the maximum', 'COMMIT_INTERVAL=2m', '1: COMMIT_INTERVAL "2m" is too large, use at most 60s'],
    ['an interval of 0', 'POST_INTERVAL=0', '1: POST_INTERVAL "0" is too small, use at least 1ms'],
    ['an invalid size', 'BUFFER_MAX_BYTES=much', '1: BUFFER_MAX_BYTES "much" is not a size, use 480kB, 20MiB or 2GiB'],
    [
      'a buffer that is too small for an outage',
      'BUFFER_MAX_BYTES=400kB',
      '1: warning: BUFFER_MAX_BYTES "400kB" leaves no room for an outage, use 2GiB, or at least 8MB; 0 means no limit',
    ],
    [
      'a file as the state folder',
      'STATE_DIR=/etc/passwd',
      '1: STATE_DIR "/etc/passwd" is not a folder, specify a folder, or remove the file',
    ],
    [
      'an ambiguous size unit',
      'BUFFER_MAX_BYTES=2G',
      '1: BUFFER_MAX_BYTES "2G" has an ambiguous unit, use 2GB (1,000s) or 2GiB (1,024s)',
    ],
    [
      'a reserve of 100 %',
      'BUFFER_MIN_FREE=100%',
      '1: BUFFER_MIN_FREE "100%" leaves no space for the buffer, use less than 100%, for example 5%',
    ],
    [
      'a count that is not a number',
      'POST_CONCURRENCY=four',
      '1: POST_CONCURRENCY "four" is not a whole number, use a number from 1 to 64',
    ],
    [
      'a count with an exponent',
      'POST_MAX_VALUES=1e3',
      '1: POST_MAX_VALUES "1e3" is not a whole number, use a number from 1 to 1000000',
    ],
    ['a count above the maximum', 'POST_CONCURRENCY=65', '1: POST_CONCURRENCY "65" is too large, use at most 64'],
    [
      'a misspelt choice',
      'DRAIN_ORDER=live_first',
      '1: DRAIN_ORDER "live_first" is not one of live-first, oldest-first, use live-first',
    ],
    [
      'an unknown choice',
      'CLIENT_AUTH=digest',
      '1: CLIENT_AUTH "digest" is unknown, use one of basic, basic-encoded, body',
    ],
    [
      'a choice named like a built-in member',
      'LOG_FORMAT=constructor',
      '1: LOG_FORMAT "constructor" is unknown, use one of auto, pretty, logfmt, json',
    ],
    ["another program's word for a level", 'LOG_LEVEL=verbose', '1: LOG_LEVEL "verbose" is unknown, use debug'],
    [
      'an unknown log level',
      'LOG_LEVEL=loud',
      '1: LOG_LEVEL "loud" is unknown, use one of trace, debug, info, warn, error, fatal',
    ],
    [
      'an incomplete choice',
      'BUFFER_FULL=oldest',
      '1: BUFFER_FULL "oldest" is not one of drop-oldest, refuse-new, use drop-oldest',
    ],
    [
      'an invalid switch',
      'WEBHOOK_ACCEPT_SHA1=maybe',
      '1: WEBHOOK_ACCEPT_SHA1 "maybe" is neither true nor false, use true or false',
    ],
    [
      'an empty value of a key that cannot be off',
      'LOG_LEVEL=',
      '1: LOG_LEVEL is empty, remove the line to use the default info, or set a value',
    ],
    [
      'an invalid listen address',
      'OPS_LISTEN=8472',
      '1: OPS_LISTEN "8472" is not a listen address, use :8472 or host:8472',
    ],
    [
      'two listeners with one address',
      'OPS_LISTEN=127.0.0.1:8471',
      '1: OPS_LISTEN and WEBHOOK_LISTEN are both 127.0.0.1:8471, set a different port for each',
    ],
    [
      'a misspelt event type',
      'WEBHOOK_EVENTS=asset_appeared,treshold_reached',
      '1: WEBHOOK_EVENTS "asset_appeared,treshold_reached" contains the unknown event type treshold_reached, use threshold_reached',
    ],
    [
      'a filter for an event type without attributes',
      'WEBHOOK_EVENTS=*\nWEBHOOK_PROPERTIES=node_appeared=tag',
      '2: WEBHOOK_PROPERTIES "node_appeared=tag" contains node_appeared, which the platform cannot filter, remove it, or use one of asset_values_created, instrumentation_values_created, asset_updated, edge_device_updated, asset_specifications_updated, event_specifications_updated, event_created, event_document_created',
    ],
    [
      'a filter for an unknown attribute',
      'WEBHOOK_EVENTS=*\nWEBHOOK_PROPERTIES=asset_updated=statsu',
      '2: WEBHOOK_PROPERTIES "asset_updated=statsu" contains statsu, which is not an attribute of asset_updated, use status',
    ],
    [
      'a filter for an unknown event type',
      'WEBHOOK_EVENTS=*\nWEBHOOK_PROPERTIES=asset_update=status',
      '2: WEBHOOK_PROPERTIES "asset_update=status" contains the unknown event type asset_update, use asset_updated',
    ],
    [
      'a filter for an unregistered event type',
      'WEBHOOK_PROPERTIES=asset_updated=status',
      '1: warning: WEBHOOK_PROPERTIES contains a filter for asset_updated, which is not in WEBHOOK_EVENTS, add asset_updated to WEBHOOK_EVENTS',
    ],
    [
      'a values path without a placeholder',
      'VALUES_PATH=/v1/assets/values',
      '1: VALUES_PATH "/v1/assets/values" has neither {asset_id} nor {instrumentation_id}, use a path such as /v1/assets/{asset_id}/values',
    ],
    [
      'a values path with an unknown placeholder',
      'VALUES_PATH=/v1/{asset}/v',
      '1: VALUES_PATH "/v1/{asset}/v" contains the unknown placeholder {asset}, use {asset_id} or {instrumentation_id}',
    ],
    [
      'an invalid header name',
      'API_KEY_HEADER=API Key',
      '1: API_KEY_HEADER "API Key" is not a header name, use API-Key',
    ],
    [
      'a header name that every call contains',
      'API_KEY_HEADER=Authorization',
      '1: API_KEY_HEADER "Authorization" is a header that every call already contains, use API-Key',
    ],
    [
      'an address without a scheme',
      'IDENTITY_URL=id.example.com',
      '1: IDENTITY_URL "id.example.com" is not an address, use a complete address that begins with https:// or http://',
    ],
    [
      'an address with an unsupported scheme',
      'WEBHOOK_URL=ftp://h/x',
      '1: WEBHOOK_URL "ftp://h/x" begins with ftp://, use an address that begins with https:// or http://',
    ],
    [
      'an address with a password',
      'IDENTITY_URL=https://u:p@h',
      '1: IDENTITY_URL "https://***@h" contains a user name or password, remove them and set TECHNICAL_USERNAME and TECHNICAL_PASSWORD',
    ],
    [
      'a webhook address without https',
      'WEBHOOK_URL=http://gw.example/',
      '1: WEBHOOK_URL "http://gw.example/" is not https, and the platform requires https, use the public https:// address',
    ],
    [
      'a certificate without its key',
      'WEBHOOK_TLS_KEY=agent.env',
      '1: WEBHOOK_TLS_KEY requires WEBHOOK_TLS_CERT, set both or neither',
      '1: warning: WEBHOOK_TLS_KEY: DIR/agent.env contains no key in PEM format, use a file with a line "-----BEGIN PRIVATE KEY-----"',
    ],
    ['a folder as a certificate', 'PLATFORM_CA=/etc', '1: PLATFORM_CA: /etc is a folder, specify the PEM file'],
    [
      'a state folder below a file',
      'STATE_DIR=/etc/passwd/state',
      '1: STATE_DIR "/etc/passwd/state" is not a folder: /etc/passwd is a file, specify a folder, or remove the file',
    ],
    [
      'an invalid host name',
      'IDENTITY_URL=https://api.example,com',
      '1: IDENTITY_URL "https://api.example,com" has an invalid host name, use letters, digits, dots and dashes',
    ],
    [
      'typographic quotes',
      'CLIENT_APPLICATION=“my gateway”',
      '1: CLIENT_APPLICATION: the value begins with a typographic quote, use " or \', or no quotes',
    ],
    [
      'a file in UTF-16',
      Buffer.from('\ufeffLOG_LEVEL=info\n', 'utf16le'),
      '1: the file is saved as UTF-16, save the file as UTF-8',
    ],
    ['a binary file', Buffer.from('ELF\u0001\u0000\u0000'), '1: the file contains zero bytes, save the file as UTF-8'],
    [
      'a missing certificate file',
      'PLATFORM_CA=/nope/ca.pem',
      '1: PLATFORM_CA: file /nope/ca.pem does not exist, use the path of a PEM file',
    ],
    [
      'a request budget above the limit of the platform',
      'REQUESTS_PER_MINUTE=600',
      '1: warning: REQUESTS_PER_MINUTE 600 exceeds the 500 requests per minute that the platform allows per user, use 400',
    ],
    ['an unclosed quote', "CLIENT_APPLICATION='x", '1: CLIENT_APPLICATION: the closing quote is missing, add it'],
    [
      'bytes that are not UTF-8',
      new Uint8Array([35, 10, 65, 61, 0xe4, 10]),
      '2: the file contains bytes that are not UTF-8, save the file as UTF-8',
    ],
    [
      'an oversized agent.env',
      'x'.repeat(1_000_001),
      '1: the file is larger than 1000000 bytes, shorten it, or check that this is the correct file',
    ],
  ]);
});

const T = 'tags:\n  T: { asset: 1, values: { v: {} } }\n';

describe('check of tags.yaml', () => {
  expectLines('tags.yaml', {}, [
    ['a tab in the indentation', 'tags:\n\tT: 1\n', '2: YAML does not allow tabs for indentation, indent with spaces'],
    [
      'a non-breaking space in the indentation',
      'tags:\n\u00a0\u00a0T: { asset: 1 }\n',
      '2: found a no-break space, YAML requires an ordinary space, replace it with a space',
    ],
    [
      'both problems of one source',
      'sources:\n  plc: { modbus: 192.168.0.5, every: 1, hots: true }\ntags: {}\n',
      '2: "192.168.0.5" is not an address, use a value such as tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0',
      '2: 1 is not a duration, use a value such as 500ms or 10s or 5m or 24h',
      '2: unknown member "hots", use "host"',
      '3: warning: the file contains no tags, so only values pushed by asset number are accepted, add tags: with one tag per measuring point',
    ],
    [
      'a source with an invalid address',
      'sources:\n  plc: { modbus: 5 }\ntags: { T: { asset: 1 } }\n',
      '2: "5" is not an address, use a value such as tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0',
    ],
    [
      'a missing space after a colon',
      'tags:\n  T:\n    asset:5\n    values: {}\n',
      '3: missing space after the colon, use name: value',
    ],
    ['a duplicate name', 'tags:\n  A: { asset: 1 }\n  A: { asset: 2 }\n', '3: duplicate name "A", keep only one'],
    [
      'several duplicate names',
      'tags:\n  A: { asset: 1, asset: 2 }\n  "A": { asset: 2 }\n',
      '2: duplicate name "asset", keep only one',
      '3: duplicate name "A", keep only one',
    ],
    ['an open bracket', 'tags: { A: { asset: 1 }\n', '1: missing closing bracket, close it with }'],
    ['an open quote', 'tags: "A\n', '2: missing closing quote, close it on the same line'],
    ['an unknown alias', 'tags:\n  A: *x\n', '2: unknown anchor &x, use the value itself'],
    [
      'aliases that multiply',
      `a: &a [x,x,x,x,x,x,x,x,x,x]\n${'bcdefgh'.replaceAll(/./g, (c) => `${c}: &${c} [${`*${String.fromCharCode(c.charCodeAt(0) - 1)},`.repeat(10)}]\n`)}`,
      '1: the YAML is too large after its aliases are expanded, remove the aliases (*name)',
    ],
    ['an alias of itself', 'tags: &t { A: *t }\n', '1: the YAML is nested too deeply, remove the aliases (*name)'],
    [
      'endless nesting',
      `tags: ${'['.repeat(50_000)}`,
      '1: the YAML is nested too deeply, check that this is the correct file',
    ],
    ['two documents', `${T}---\n${T}`, '3: a second document begins here, remove the --- line'],
    [
      'a YAML type tag',
      'tags: !x { }\n',
      '1: YAML tags (words that begin with !) are not supported, remove the word that begins with !',
    ],
    ['a name that is a list', 'tags: { [a]: 1 }\n', '1: a name must be text, use name: value'],
    [
      'a list instead of a mapping',
      '- tags\n',
      '1: a list is not a mapping of sources and tags, use a value such as { tags: { FT-101: { asset: 881 } } }',
    ],
    [
      'bytes that are not UTF-8',
      new Uint8Array([0xff]),
      '1: the file contains bytes that are not UTF-8, save the file as UTF-8',
    ],
    [
      'a file that is too large',
      `# ${'x'.repeat(4_000_000)}`,
      '1: the file is larger than 4000000 bytes, shorten it, or check that this is the correct file',
    ],
    ['an unknown section', `tagz: {}\n${T}`, '1: unknown member "tagz", use "tags"'],
    ['a tag without an asset', 'tags:\n  T:\n    values: {}\n', '2: "T" has no member "asset", add asset: 881'],
    ['a misspelt asset member', 'tags:\n  T:\n    aset: 1\n', '3: unknown member "aset", use "asset"'],
    [
      'a quoted asset number',
      'tags:\n  T:\n    asset: "881"\n',
      '3: "881" is not an asset number, use a value such as 881',
    ],
    ['asset number 0', 'tags:\n  T: { asset: 0 }\n', '2: 0 is not an asset number, use a value such as 881'],
    [
      'a key that the platform rejects',
      'tags:\n  T: { asset: 1, values: { "a b": {} } }\n',
      '2: "a b" is not a valid key (1 to 128 letters, digits, ".", "-", "_"), use a value such as flow or process_temperature',
    ],
    [
      'a key that is too long',
      `tags:\n  T:\n    asset: 1\n    values:\n      ${'k'.repeat(129)}: {}\n`,
      `5: "${'k'.repeat(60)}…" is not a valid key (1 to 128 letters, digits, ".", "-", "_"), use a value such as flow or process_temperature`,
    ],
    [
      'a group that the platform rejects',
      'tags:\n  T: { asset: 1, values: { v: { group: "a/b" } } }\n',
      '2: "a/b" is not a valid group (1 to 128 letters, digits, ".", "-", "_"), use a value such as process',
    ],
    [
      'two keys that differ only in case',
      'tags:\n  T:\n    asset: 1\n    values:\n      Flow: {}\n      flow: {}\n',
      '6: "flow" and "Flow" on line 5 are the same key, because the platform converts keys to lower case, rename one of them',
    ],
    [
      'two tags with the same value',
      'tags:\n  T: { asset: 1, values: { Flow: { group: P } } }\n  U: { asset: 1, values: { flow: { group: p } } }\n',
      '3: "flow" of tag "U" is the same value as "Flow" of tag "T" on line 2: key "flow" in group "p" of asset 1, change the asset, key or group of one of them',
    ],
    [
      'a unit name instead of a number or code',
      'tags:\n  T: { asset: 1, values: { v: { unit: bar } } }\n',
      '2: "bar" is not a unit, use a value such as 12 or { code: degree_celsius }',
    ],
    [
      'a misspelt unit member',
      'tags:\n  T: { asset: 1, values: { v: { unit: { cod: bar } } } }\n',
      '2: unknown member "cod", use "code"',
    ],
    [
      'a misspelt member',
      'tags:\n  T: { asset: 1, values: { v: { gruop: x } } }\n',
      '2: unknown member "gruop", use "group"',
    ],
    [
      'a decimal comma',
      'sources: { plc: { modbus: "tcp://192.168.0.5:502", unit: 1, every: 1s } }\ntags:\n  T: { asset: 1, values: { flow: { unit: 1, from: plc, register: 10, scale: 0,1 } } }\n',
      '3: unknown member "1", use a decimal point: a comma starts another member',
    ],
    [
      'a member unlike any other',
      'tags: { T: { asset: 1, values: { v: { unit: 1, xy: 2 } } } }\n',
      '1: unknown member "xy", remove it (the nearest known is "at")',
    ],
    [
      'a register without a source',
      'tags:\n  T: { asset: 1, values: { v: { register: coil 1 } } }\n',
      '2: "register" requires a source, and "v" has no from:, add from: with a source name, or remove it',
    ],
    [
      'a source reference in a file without sources',
      'tags:\n  T: { asset: 1, values: { v: { from: plc } } }\n',
      '2: unknown source "plc", add "plc" under sources:',
    ],
  ]);

  const source = (member: string) => `sources:\n  s: ${member}\n${T}`;
  expectLines('tags.yaml', {}, [
    [
      'a source without a kind',
      source('{ every: 1s }'),
      '2: source "s" has no kind, add one of modbus: tcp://…, mqtt: mqtt://…, nats: nats://…, sparkplug: mqtt://…, opcua: opc.tcp://…, csv: /srv/tagferry/in, exec: [/opt/site/read-probe], host: true',
    ],
    [
      'a source with an unknown kind',
      source('{ beckhoff: x }'),
      '2: unknown source kind "beckhoff", use one of modbus: tcp://…, mqtt: mqtt://…, nats: nats://…, sparkplug: mqtt://…, opcua: opc.tcp://…, csv: /srv/tagferry/in, exec: [/opt/site/read-probe], host: true',
    ],
    [
      'a source with an unknown kind of few letters and its member',
      source('{ s7: 10.0.0.1, rack: 0 }'),
      '2: unknown source kind "s7", use one of modbus: tcp://…, mqtt: mqtt://…, nats: nats://…, sparkplug: mqtt://…, opcua: opc.tcp://…, csv: /srv/tagferry/in, exec: [/opt/site/read-probe], host: true',
    ],
    ['a misspelled kind', source('{ modbuss: "tcp://h" }'), '2: unknown member "modbuss", use "modbus"'],
    [
      'a source with two kinds',
      source('{ host: true, simulate: true }'),
      '2: source "s" has more than one kind: host and simulate, use one source per kind',
    ],
    ['a host source that is not true', source('{ host: false }'), '2: false is not true, use a value such as true'],
    [
      'an address with an unsupported scheme',
      source('{ modbus: "udp://h" }'),
      '2: "udp://h" has the unsupported scheme udp://, use a value such as tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0',
    ],
    [
      'an invalid address',
      source('{ mqtt: broker }'),
      '2: "broker" is not an address, use a value such as mqtt://127.0.0.1:1883',
    ],
    [
      'an address with a password',
      source('{ mqtt: "http://u:p@h" }'),
      '2: "http://***@h" has the unsupported scheme http://, use a value such as mqtt://127.0.0.1:1883',
    ],
    [
      'an invalid Modbus unit',
      source('{ modbus: "tcp://h", unit: 256 }'),
      '2: 256 is not a Modbus unit from 0 to 255, use a value such as 1',
    ],
    [
      'an interval without a unit',
      source('{ modbus: "tcp://h", every: 10 }'),
      '2: 10 is not a duration, use a value such as 500ms or 10s or 5m or 24h',
    ],
    [
      'a source interval of 0',
      source('{ modbus: "tcp://h", every: 0s }'),
      '2: every "0s" is too short, use a duration from 10ms to 7d, for example 1s',
    ],
    [
      'a member of another source kind',
      source('{ mqtt: "mqtt://h", every: 1s }'),
      '2: "every" is not supported by mqtt sources, remove it',
    ],
  ]);

  expectLines('tags.yaml', {}, [
    [
      'a serial line with two speeds',
      'sources:\n  a: { modbus: "rtu:/dev/ttyUSB0", baud: 9600 }\n  b: { modbus: "rtu:/dev/ttyUSB0", parity: odd }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 }, y: { from: b, register: coil 1 } } } }\n',
      '3: baud 19200 differs from "a" on the same line (9600), set the same value for both: baud: 9600',
      '3: parity odd differs from "a" on the same line (even), set the same value for both: parity: even',
    ],
    [
      'a serial line without a device path',
      'sources:\n  a: { modbus: "rtu:ttyUSB0" }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: "rtu:ttyUSB0" must have a device path after rtu:, beginning with /, use a value such as tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0',
    ],
    [
      'a baud rate of a TCP source',
      'sources:\n  a: { modbus: "tcp://h", baud: 9600 }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: baud 9600 is not supported for tcp:, remove it',
    ],
    [
      'two connections to a serial line',
      'sources:\n  a: { modbus: "rtu:/dev/ttyUSB0", connections: 2 }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: connections 2 is not supported for rtu:, remove it',
    ],
    [
      'framing of a serial line',
      'sources:\n  a: { modbus: "rtu:/dev/ttyUSB0", framing: rtu }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: framing rtu is not supported for rtu:, remove it',
    ],
    [
      'a host with two kinds of framing',
      'sources:\n  a: { modbus: "tcp://h:502", framing: rtu }\n  b: { modbus: "tcp://h" }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 }, y: { from: b, register: coil 1 } } } }\n',
      '3: framing tcp differs from "a" for the same host and port (rtu), set the same value for both: framing: rtu',
    ],
    [
      'a pause of one minute',
      'sources:\n  a: { modbus: "tcp://h", pause: 1m }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: pause "1m" must be at most 10s, use a value such as 50ms',
    ],
    [
      'a program that does not exist',
      source('{ exec: [/no/such/program], timeout: 1ms }'),
      '2: warning: /no/such/program does not exist, install it, or set the path of a program',
      '2: timeout "1ms" must be between 100ms and 7d, use a value such as 30s',
    ],
    [
      'a program that is a folder',
      source('{ exec: [/etc] }'),
      '2: warning: no value uses source "s", add from: s to a value, or remove the source',
      '2: warning: /etc is not a file, set the path of a program',
    ],
    [
      'an empty command',
      source('{ exec: [""] }'),
      '2: the command is empty, use a value such as [/opt/site/read-probe, "--all"]',
    ],
    [
      'a timeout of one hour',
      'sources:\n  a: { modbus: "tcp://h", timeout: 1h }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: timeout "1h" must be between 20ms and 60s, use a value such as 1s',
    ],
  ]);

  const value = (member: string) =>
    `sources: { plc1: { modbus: "tcp://h" }, broker: { mqtt: "mqtt://h" }, self: { host: true }, sim: { simulate: true } }\ntags:\n  X: { asset: 9, values: { a: { from: plc1, register: coil 1 }, b: { from: broker, topic: t }, c: { from: self, reading: load1 }, d: { from: sim } } }\n  T: { asset: 1, values: { v: ${member} } }\n`;
  expectLines('tags.yaml', {}, [
    ['an unknown source', value('{ from: plc2, register: coil 1 }'), '4: unknown source "plc2", use "plc1"'],
    [
      'an unknown source with a register that is too high',
      value('{ from: plc2, register: holding 70000 }'),
      '4: unknown source "plc2", use "plc1"',
      '4: register "holding 70000" exceeds the last address 65535, use the protocol address, or the number without "holding"',
    ],
    [
      'an unknown source with a topic that cannot match',
      value('{ from: brocker, topic: a/#/b }'),
      '4: unknown source "brocker", use "broker"',
      '4: topic "a/#/b" contains a # before the last level, use a value such as site/#',
    ],
    [
      'only the unknown source if the members belong to two kinds',
      value('{ from: brocker, topic: a/#/b, register: holding 70000 }'),
      '4: unknown source "brocker", use "broker"',
    ],
    [
      'an unknown source with an invalid unit',
      value('{ from: plc2, register: coil 1, unit: -1 }'),
      '4: unknown source "plc2", use "plc1"',
      '4: -1 is not a unit, use a value such as 12 or { code: degree_celsius }',
    ],
    [
      'a value without a register',
      value('{ from: plc1 }'),
      '4: a value from the modbus source "plc1" requires "register", add register: holding 1013',
    ],
    [
      'a misspelt register',
      value('{ from: plc1, register: hold 1 }'),
      '4: register "hold 1" is not a Modbus register, use a value such as holding 0 (protocol address) or 40001 (Modicon number)',
    ],
    [
      'a table without a register',
      value('{ from: plc1, register: holding }'),
      '4: register "holding" is not a Modbus register, use a value such as holding 0 (protocol address) or 40001 (Modicon number)',
    ],
    [
      'an unknown type',
      value('{ from: plc1, register: input 1, type: real }'),
      '4: "real" is unknown, use one of "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "bcd16", "bcd32", "string", "bool" (the nearest is "bool")',
    ],
    [
      'an unknown byte order',
      value('{ from: plc1, register: input 1, byte_order: little }'),
      '4: "little" is unknown, use one of "ABCD", "CDAB", "BADC", "DCBA", "ABCDEFGH", "GHEFCDAB", "BADCFEHG", "HGFEDCBA" (the nearest is "ABCD")',
    ],
    [
      'a range of bits in the wrong order',
      value('{ from: plc1, register: input 1, bit: 7-4 }'),
      '4: bit "7-4" is not a range of bits, use the lowest and the highest bit (0 to 15), for example 4-7',
    ],
    [
      'a bit beyond the register',
      value('{ from: plc1, register: input 1, bit: 16 }'),
      '4: 16 is not a bit from 0 to 15, or a range of bits, use a value such as 3 or 4-7',
    ],
    [
      'a string without a length',
      value('{ from: plc1, register: input 1, type: string }'),
      '4: type "string" requires the number of characters, add length: 8',
    ],
    [
      'a length without a string',
      value('{ from: plc1, register: input 1, length: 8 }'),
      '4: length 8 is not supported for uint16, remove it, or add type: string',
    ],
    [
      'a string with reversed registers',
      value('{ from: plc1, register: input 1, type: string, length: 8, byte_order: CDAB }'),
      '4: byte_order "CDAB" reverses the registers of a string, use ABCD or BADC',
    ],
    [
      'a register that is too high',
      value('{ from: plc1, register: holding 65535, type: float32 }'),
      '4: register "holding 65535" exceeds the last address 65535, use holding 0 (protocol address) or 40001 (Modicon number)',
    ],
    [
      'an encoding by another name',
      'sources:\n  f: { csv: /srv/in, time_column: 1, encoding: Latin1 }\ntags:\n  A: { asset: 1, values: { k: { from: f } } }\n',
      '2: "Latin1" is not one of utf-8, windows-1252, utf-16le, utf-16be, use "windows-1252"',
    ],
    [
      'an unknown MQTT quality of service',
      'sources:\n  b: { mqtt: "mqtt://127.0.0.1:1883", qos: 3 }\ntags:\n  A: { asset: 1, values: { k: {} } }\n',
      '2: 3 is unknown, use 0 or 1 or 2',
    ],
    [
      'a misspelt type',
      value('{ from: plc1, register: input 1, type: float }'),
      '4: "float" is not one of int16, uint16, int32, uint32, int64, uint64, float32, float64, bcd16, bcd32, string, bool, use "float32"',
    ],
    [
      'a numeric type of a coil',
      value('{ from: plc1, register: coil 1, type: int16 }'),
      '4: type "int16" does not fit coil registers, which contain one bit, use bool, or omit it',
    ],
    [
      'an unknown Modicon number',
      value('{ from: plc1, register: 20001 }'),
      '4: register 20001 is not a Modicon number (40001, 30001, 10001, 1 to 9999; with six digits 400001), use the table and the protocol address: holding 20001',
    ],
    [
      'a Modicon number after a table name',
      value('{ from: plc1, register: holding 400001 }'),
      '4: register "holding 400001" exceeds the last address 65535, use the protocol address, or the number without "holding"',
    ],
    [
      'a byte order of eight bytes for a type of four',
      value('{ from: plc1, register: input 1, type: int32, byte_order: HGFEDCBA }'),
      '4: byte_order "HGFEDCBA" has eight bytes, and int32 has fewer, use ABCD, CDAB, BADC or DCBA',
    ],
    [
      'a boolean in a register without a bit',
      value('{ from: plc1, register: input 1, type: bool }'),
      '4: type "bool" does not fit input registers, which contain 16 bits, add bit: 0 to 15, or use uint16',
    ],
    [
      'a scale of 0',
      value('{ from: plc1, register: input 1, scale: 0 }'),
      '4: scale 0 reduces every value to zero or overflows, use a value such as 0.1, or omit it',
    ],
    [
      'a topic of a Modbus source',
      value('{ from: plc1, register: input 1, topic: x }'),
      '4: "topic" is not supported by the modbus source "plc1", remove it; modbus values support type, byte_order, bit, length, scale_register',
    ],
    [
      'an address of a value from a program',
      'sources: { probe: { exec: [/bin/cat] } }\ntags: { T: { asset: 1, values: { v: { from: probe, topic: x, scale: 2 } } } }',
      '2: "topic" is not supported by the exec source "probe", remove it; exec values are assigned by tag and key',
    ],
    [
      'a wildcard for part of a level',
      value('{ from: broker, topic: site/ft+ }'),
      '4: topic "site/ft+" contains a wildcard (+ or #) that is not a whole level, use a value such as site/+/flow',
    ],
    [
      'a # before the final level',
      value('{ from: broker, topic: "site/#/flow" }'),
      '4: topic "site/#/flow" contains a # before the last level, use a value such as site/#',
    ],
    [
      'a shared subscription without message times',
      'sources: { broker: { mqtt: "mqtt://h", share: gw } }\ntags: { T: { asset: 1, values: { v: { from: broker, topic: t } } } }\n',
      '1: warning: "mqtt://h": agents in the group "gw" can assign the same time to two values of one series, and the platform keeps only one of them, add time: to the values',
    ],
    [
      'a shared durable consumer without message times',
      'sources: { broker: { nats: "nats://h", durable: gw, time_from: arrival } }\ntags: { T: { asset: 1, values: { v: { from: broker, subject: t } } } }\n',
      '1: warning: "nats://h": agents in the group "gw" can assign the same time to two values of one series, and the platform keeps only one of them, add time: to the values',
    ],
    [
      'a shared subscription',
      value('{ from: broker, topic: $share/gw/site/+ }'),
      '4: topic "$share/gw/site/+" is a shared subscription, set share: to the group in the source, and use topic: site/+',
    ],
    [
      'a path that is not a JSON pointer',
      value('{ from: broker, topic: x, at: temp }'),
      '4: "temp" is not a JSON pointer, use a value such as /temp',
    ],
    [
      'an unknown host reading',
      value('{ from: self, reading: lod1 }'),
      '4: reading "lod1" is not a known reading, use "load1"',
    ],
    [
      'a host reading with an unsupported argument',
      value('{ from: self, reading: "load1:x" }'),
      '4: reading "load1:x" does not accept an argument, use load1',
    ],
    [
      'a minimum above the maximum',
      value('{ from: sim, low: 5, high: 1 }'),
      '4: low 5 must be less than high 1, set a low that is less than high',
    ],
  ]);
});

const TAGS = {
  'tags.yaml':
    'sources: { broker: { mqtt: "mqtt://h" } }\ntags: { FT-101: { asset: 1, values: { v: { from: broker, topic: t } } } }\n',
};
const rule = (rest: string) => `reactions:\n  - name: r\n${rest.replaceAll(/^/gm, '    ')}\n`;
const action = (text: string) => rule(`on: threshold_reached\ndo:\n  - ${text}`);

describe('platform address', () => {
  it('is reported if it contains an API path', () => {
    const { lines, configuration } = check({}, { ...ENOUGH, PLATFORM_URL: 'https://api.example.com/v1/' });
    expect(configuration).toBeDefined();
    expect(lines).toEqual([
      'environment: warning: PLATFORM_URL "https://api.example.com/v1" ends with /v1, but every call already begins with /v1, /v2 or /oauth, remove /v1',
    ]);
  });
});

describe('certificate', () => {
  it('is reported with the conversion command if it is in DER format, as exported by Windows', () => {
    const { lines, configuration } = check({
      'agent.env': 'PLATFORM_CA=ca.cer\n',
      'ca.cer': Uint8Array.of(0x30, 0x82, 0x01, 0x0a, 0x02),
    });
    expect(configuration).toBeDefined();
    expect(lines).toEqual(
      [
        '1: warning: PLATFORM_CA: DIR/ca.cer contains no certificate in PEM format, convert it from DER: run openssl x509 -in DIR/ca.cer -out DIR/ca.cer.pem, and use that file',
      ].map((line) => `DIR/agent.env:${line}`),
    );
  });
});

describe('reactions.yaml check', () => {
  expectLines('reactions.yaml', TAGS, [
    [
      'reactions that are not a list',
      'reactions: { a: 1 }\n',
      '1: a mapping is not a list of reactions, use a value such as [{ name: note, on: threshold_reached, do: [{ log: warn }] }]',
    ],
    [
      'a list without the member reactions',
      '- name: a\n',
      '1: a list is not a mapping with a list of reactions, use a value such as { reactions: [] }',
    ],
    [
      'an invalid entry',
      'reactions:\n  - hello\n',
      '2: "hello" is not a reaction, use a value such as { name: note, on: threshold_reached, do: [{ log: warn }] }',
    ],
    ['a missing action list', rule('on: threshold_reached'), '2: entry 1 has no member "do", add do: [{ log: warn }]'],
    [
      'an empty action list',
      rule('on: threshold_reached\ndo: []'),
      '4: an empty list is not a list of actions, use a value such as [{ log: warn }]',
    ],
    [
      'a misspelt member',
      rule('on: threshold_reached\ncooldwon: 1s\ndo: [{ log: warn }]'),
      '4: unknown member "cooldwon", use "cooldown"',
    ],
    [
      'a duplicate name',
      `${rule('on: "*"\ndo: [{ log: warn }]')}  - { name: r, on: "*", do: [{ log: warn }] }\n`,
      '5: the name "r" is already used on line 2, use a unique name for each reaction',
    ],
    [
      'an unknown event type',
      rule('on: treshold_reached\ndo: [{ log: warn }]'),
      '3: unknown event type "treshold_reached", use "threshold_reached"',
    ],
    [
      'an unknown event type in a list',
      rule('on:\n  - asset_appeared\n  - asset_disapeared\ndo: [{ log: warn }]'),
      '5: unknown event type "asset_disapeared", use "asset_disappeared"',
    ],
    [
      'an unknown tag',
      rule('on: threshold_reached\nif: { tag: FT-110 }\ndo: [{ log: warn }]'),
      '4: tags.yaml contains no tag "FT-110", use "FT-101"',
    ],
    [
      'a tag that is not a name',
      rule('on: threshold_reached\nif: { tag: { above: 1 } }\ndo: [{ log: warn }]'),
      '4: a mapping is not a tag name, use a tag name or a list of tag names',
    ],
    [
      'a misspelt condition',
      rule('on: threshold_reached\nif: { data.value: { abov: 1 } }\ndo: [{ log: warn }]'),
      '4: unknown member "abov", use "above"',
    ],
    [
      'a bound that is text',
      rule('on: threshold_reached\nif: { data.value: { above: "1" } }\ndo: [{ log: warn }]'),
      '4: "1" is not a number, use a value such as 20',
    ],
    [
      'an empty condition',
      rule('on: threshold_reached\nif: { data.value: [] }\ndo: [{ log: warn }]'),
      '4: an empty list is not a condition, use a value such as high or [high, low] or { above: 20 } or { above: 20, below: 80 }',
    ],
    [
      'a path with a space',
      rule('on: threshold_reached\nif: { "data value": 1 }\ndo: [{ log: warn }]'),
      '4: "data value" is not a path of member names, separated by dots, use a value such as data.value',
    ],
    [
      'a time without a unit',
      rule('on: threshold_reached\ncooldown: 60\ndo: [{ log: warn }]'),
      '4: 60 is not a duration, use a value such as 500ms or 10s or 5m or 24h',
    ],
    ['an empty action', action('{}'), '5: the action has no kind, add one of run, post, publish, write, log'],
    ['a misspelt action', action('pubish: { to: broker, topic: x }'), '5: unknown member "pubish", use "publish"'],
    [
      'two kinds in one action',
      action('{ log: warn, post: "http://h" }'),
      '5: one action contains post and log, begin each action with a dash',
    ],
    [
      'a command as text',
      action('run: /bin/x FT-101'),
      '5: "/bin/x FT-101" is not a list with a program and its arguments, use a value such as [/opt/site/close-valve, FT-101]',
    ],
    [
      'a missing program',
      action('run: [/nope/x]'),
      '5: warning: program /nope/x not found, install it, or use its full path',
    ],
    [
      'a template in a command',
      action('run: [node, "{{content.data.value}}"]'),
      '5: warning: run passes {{content.data.value}} to the program unchanged, read the event from standard input, as JSON',
    ],
    [
      'a timeout of 0',
      action('{ run: [x], timeout: 0s }'),
      '5: timeout "0s" must be longer than 0, use a duration from 1ms to 1h, for example 10s',
    ],
    [
      'a timeout of an action that does not support one',
      action('{ log: warn, timeout: 1s }'),
      '5: "timeout" is not supported by log, remove it',
    ],
    ['a misspelt level', action('log: warning'), '5: "warning" is not one of debug, info, warn, error, use "warn"'],
    [
      'an invalid address',
      action('post: alarm'),
      '5: "alarm" is not an address, use a value such as http://127.0.0.1:1880/alarm',
    ],
    [
      'a header with a line break',
      action('{ post: "http://h", headers: { X: "a\\r\\nb" } }'),
      '5: the value is not a header value, use a value such as north',
    ],
    [
      'an unknown broker',
      action('publish: { to: brokr, topic: x }'),
      '5: tags.yaml contains no source "brokr", use "broker"',
    ],
    [
      'a misspelt template',
      action('{ post: "http://h", body: { x: { y: ["{{content.data.valeu}}", "{{ content.data.value }}"] } } }'),
      '5: warning: {{content.data.valeu}} is always empty: threshold_reached has no such member, use "content.data.value"',
    ],
    [
      'a template that is always empty',
      action('{ post: "http://h", body: "{{data.value}} at {{occurred_at}}" }'),
      '5: warning: {{data.value}} is always empty: threshold_reached has no such member, use {{content.data.value}}',
    ],
    [
      'a topic template without a value in any event type',
      rule(
        'on: [asset_appeared, node_appeared]\ndo: [{ publish: { to: broker, topic: "a/{{content.asset.id}}/{{content.user.id}}/{{content.nod.id}}" } }]',
      ),
      '4: warning: {{content.nod.id}} is always empty: these event types have no such member, use "content.node.id"',
    ],
    [
      'a missing topic',
      action('publish: { to: broker }'),
      '5: "publish" has no member "topic", add topic: site/alarms',
    ],
    [
      'a topic with a wildcard',
      action('publish: { to: broker, topic: a/+ }'),
      '5: topic "a/+" contains a wildcard (+ or #), use one topic, for example site/alarms',
    ],
  ]);

  it('reports a publish action to a source that is not a broker', () => {
    const tags =
      'sources: { plc: { modbus: "tcp://h" } }\ntags: { T: { asset: 1, values: { v: { from: plc, register: coil 1 } } } }\n';
    expect(check({ 'tags.yaml': tags, 'reactions.yaml': action('publish: { to: plc, topic: x }') }).lines).toEqual([
      'DIR/reactions.yaml:5: "plc" is a modbus source, not a broker, use the name of a source with mqtt:',
    ]);
  });
});

describe('configuration problems', () => {
  it('are all reported even if a file contains a duplicate name', () => {
    const tags = 'tags:\n  T: { asset: 1 }\n  T: { asset: 2 }\n  U: { aset: 3 }\n';
    const { lines } = check({
      'tags.yaml': tags,
      'reactions.yaml': 'reactions:\n  - { name: r, on: x, do: [{ log: warn }] }\n',
    });
    expect(lines.map((line) => line.split(',')[0])).toEqual([
      'DIR/tags.yaml:3: duplicate name "T"',
      'DIR/tags.yaml:4: unknown member "aset"',
      'DIR/reactions.yaml:2: unknown event type "x"',
    ]);
  });

  it('are reported for all files at once, sorted by file and line', () => {
    const { lines, problems, configuration } = check(
      {
        'agent.env': 'LOG_LEVEL=loud\nFOO_BAR=1\n',
        'tags.yaml': 'tags:\n  T: { asset: x }\n  U: { aset: 1 }\n',
        'reactions.yaml': 'reactions:\n  - { name: r, on: x, do: [] }\n',
      },
      { ...ENOUGH, POST_INTERVAL: '5' },
    );
    expect(configuration).toBeUndefined();
    expect(lines.map((line) => line.split(' ')[0])).toEqual([
      'DIR/agent.env:1:',
      'DIR/agent.env:2:',
      'DIR/tags.yaml:2:',
      'DIR/tags.yaml:3:',
      'DIR/reactions.yaml:2:',
      'DIR/reactions.yaml:2:',
      'environment:',
    ]);
    expect(problems[2]).toEqual({
      file: expect.stringMatching(/tags\.yaml$/),
      line: 2,
      column: 15,
      text: 'x',
      reason: '"x" is not an asset number',
      instead: 'use a value such as 881',
      severity: 'error',
    });
  });

  it('are single lines without a stack trace for any file content', () => {
    const good = {
      'agent.env': 'LOG_LEVEL=info\nPOST_INTERVAL="5s"\n',
      'tags.yaml':
        'sources: { plc1: { modbus: "tcp://h", every: 1s }, b: { mqtt: "mqtt://h" } }\ntags:\n  FT-101: &a\n    asset: 881\n    values:\n      flow: { unit: { code: x }, from: plc1, register: holding 3, type: float32 }\n      t: { from: b, topic: x/y }\n  U: { <<: *a, asset: 5 }\n',
      'reactions.yaml':
        'reactions:\n  - name: a\n    on: [threshold_reached]\n    if: { tag: FT-101, data.value: { above: 2 } }\n    do:\n      - run: [x, "y"]\n      - post: http://h/x\n      - publish: { to: b, topic: z }\n',
    };
    expect(check(good).lines).toEqual([]);
    let state = 20_261_121;
    const random = (below: number) => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const pieces = [
      '{',
      '}',
      '[',
      ']',
      ':',
      '- ',
      '\n',
      '\t',
      '"',
      "'",
      '&a ',
      '*a',
      '!x ',
      '<<: ',
      '|',
      '%',
      '\u0000',
      'null',
      '1',
      '~',
      ', ',
      '? ',
      '/~2',
      '#',
    ];
    for (let round = 0; round < 400; round++) {
      const files: Record<string, string> = { ...good };
      const name = Object.keys(good)[random(3)]!;
      let text = files[name]!;
      for (let edit = 0; edit <= random(4); edit++) {
        const at = random(text.length);
        text = text.slice(0, at) + pieces[random(pieces.length)] + text.slice(at + random(3));
      }
      files[name] = text;
      for (const line of check(files).lines) {
        expect(line, JSON.stringify(text)).toMatch(
          /^DIR\/(agent\.env|tags\.yaml|reactions\.yaml):\d+: \S[^\n]*, \S[^\n]*$/,
        );
      }
    }
  });
});
