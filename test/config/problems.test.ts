import { describe, expect, it } from 'vitest';
import { check, ENOUGH, misplaced } from './folder.ts';

/** Each case: a broken file, and exactly the lines that `check` prints for it. */
type Case = [title: string, text: string | Uint8Array, ...lines: string[]];

function expectLines(file: string, more: Record<string, string>, cases: readonly Case[]): void {
  it.each(cases)('%s', (_, text, ...lines) => {
    const files = { ...more, [file]: text };
    const checked = check(files);
    expect(checked.lines).toEqual(lines.map((line) => `DIR/${file}:${line}`));
    expect(misplaced(files, checked)).toEqual([]);
  });
}

describe('agent.env', () => {
  expectLines('agent.env', {}, [
    ['a misspelt key', '# x\nPOST_INTERVALL=1s\n', '2: POST_INTERVALL is not a known key, write POST_INTERVAL'],
    [
      'a misspelt _FILE',
      'CLIENT_SECRETS_FILE=x\n',
      '1: CLIENT_SECRETS_FILE is not a known key, write CLIENT_SECRET_FILE',
    ],
    ['a key in lower case', 'log_level=info\n', '1: log_level is not a known key, write LOG_LEVEL'],
    ['a key of something else', 'TZ=UTC\n', '1: TZ is not a known key, remove it (the nearest known is POST_GZIP)'],
    ['no key at all', 'hello world\n', '1: this is no KEY=value line, write KEY=value, or # before a comment'],
    ['a key twice', 'LOG_LEVEL=info\n\nLOG_LEVEL=warn\n', '3: LOG_LEVEL stands already on line 1, keep one of the two'],
    [
      'a duration without unit',
      'POST_INTERVAL=10',
      '1: POST_INTERVAL "10" has no unit, write 10s for seconds or 10ms for milliseconds',
    ],
    ['no duration', 'WEBHOOK_POLL=often', '1: WEBHOOK_POLL "often" is not a duration, write 500ms, 10s, 5m, 24h or 7d'],
    ['too long a duration', 'COMMIT_INTERVAL=2m', '1: COMMIT_INTERVAL "2m" is too large, write at most 60s'],
    ['no interval', 'POST_INTERVAL=0', '1: POST_INTERVAL "0" is too small, write at least 1ms'],
    ['no size', 'BUFFER_MAX_BYTES=much', '1: BUFFER_MAX_BYTES "much" is not a size, write 480kB, 20MiB or 2GiB'],
    [
      'a buffer without room',
      'BUFFER_MAX_BYTES=400kB',
      '1: warning: BUFFER_MAX_BYTES "400kB" leaves no room for an outage, write 2GiB, or at least 8MB; 0 sets no bound',
    ],
    [
      'a file as the state folder',
      'STATE_DIR=/etc/passwd',
      '1: STATE_DIR "/etc/passwd" is no folder, name a folder, or remove what stands there',
    ],
    [
      'half a size',
      'BUFFER_MAX_BYTES=2G',
      '1: BUFFER_MAX_BYTES "2G" does not say which bytes it counts, write 2GB (1,000s) or 2GiB (1,024s)',
    ],
    [
      'no share',
      'BUFFER_MIN_FREE=100%',
      '1: BUFFER_MIN_FREE "100%" leaves nothing for the buffer, write less than 100%, for example 5%',
    ],
    [
      'no count',
      'POST_CONCURRENCY=four',
      '1: POST_CONCURRENCY "four" is not a whole number, write a number from 1 to 64',
    ],
    [
      'half a count',
      'POST_MAX_VALUES=1e3',
      '1: POST_MAX_VALUES "1e3" is not a whole number, write a number from 1 to 1000000',
    ],
    ['too large a count', 'POST_CONCURRENCY=65', '1: POST_CONCURRENCY "65" is too large, write at most 64'],
    [
      'a choice misspelt',
      'DRAIN_ORDER=live_first',
      '1: DRAIN_ORDER "live_first" is none of live-first, oldest-first, write live-first',
    ],
    [
      'a choice unknown',
      'CLIENT_AUTH=digest',
      '1: CLIENT_AUTH "digest" is unknown, write one of basic, basic-encoded, body',
    ],
    [
      'a choice that every object has',
      'LOG_FORMAT=constructor',
      '1: LOG_FORMAT "constructor" is unknown, write one of auto, pretty, logfmt, json',
    ],
    ["another program's word for a level", 'LOG_LEVEL=verbose', '1: LOG_LEVEL "verbose" is unknown, write debug'],
    [
      'a level that nobody has',
      'LOG_LEVEL=loud',
      '1: LOG_LEVEL "loud" is unknown, write one of trace, debug, info, warn, error, fatal',
    ],
    [
      'half of a choice',
      'BUFFER_FULL=oldest',
      '1: BUFFER_FULL "oldest" is none of drop-oldest, refuse-new, write drop-oldest',
    ],
    [
      'no switch',
      'WEBHOOK_ACCEPT_SHA1=maybe',
      '1: WEBHOOK_ACCEPT_SHA1 "maybe" is neither true nor false, write true or false',
    ],
    [
      'empty where that means nothing',
      'LOG_LEVEL=',
      '1: LOG_LEVEL is empty, remove the line for the default info, or give it a value',
    ],
    ['no listen address', 'OPS_LISTEN=8472', '1: OPS_LISTEN "8472" is not a listen address, write :8472 or host:8472'],
    [
      'two listeners in one place',
      'OPS_LISTEN=127.0.0.1:8471',
      '1: OPS_LISTEN and WEBHOOK_LISTEN are both 127.0.0.1:8471, give each a port of its own',
    ],
    [
      'an event type misspelt',
      'WEBHOOK_EVENTS=asset_appeared,treshold_reached',
      '1: WEBHOOK_EVENTS "asset_appeared,treshold_reached" names the unknown event type treshold_reached, write threshold_reached',
    ],
    [
      'a filter of an event type that has none',
      'WEBHOOK_EVENTS=*\nWEBHOOK_PROPERTIES=node_appeared=tag',
      '2: WEBHOOK_PROPERTIES "node_appeared=tag" names node_appeared, which has no filter on the platform, remove it, or write one of asset_values_created, instrumentation_values_created, asset_updated, edge_device_updated, asset_specifications_updated, event_specifications_updated, event_created, event_document_created',
    ],
    [
      'a filter of an attribute that the event type does not have',
      'WEBHOOK_EVENTS=*\nWEBHOOK_PROPERTIES=asset_updated=statsu',
      '2: WEBHOOK_PROPERTIES "asset_updated=statsu" names statsu, which is not an attribute of asset_updated, write status',
    ],
    [
      'a filter of an unknown event type',
      'WEBHOOK_EVENTS=*\nWEBHOOK_PROPERTIES=asset_update=status',
      '2: WEBHOOK_PROPERTIES "asset_update=status" names the unknown event type asset_update, write asset_updated',
    ],
    [
      'a filter of an event type that is not registered',
      'WEBHOOK_PROPERTIES=asset_updated=status',
      '1: warning: WEBHOOK_PROPERTIES has a filter for asset_updated, which is not among WEBHOOK_EVENTS, add asset_updated to WEBHOOK_EVENTS',
    ],
    [
      'a path without its place',
      'VALUES_PATH=/v1/assets/values',
      '1: VALUES_PATH "/v1/assets/values" has neither {asset_id} nor {instrumentation_id}, write a path such as /v1/assets/{asset_id}/values',
    ],
    [
      'a path with another place',
      'VALUES_PATH=/v1/{asset}/v',
      '1: VALUES_PATH "/v1/{asset}/v" has the unknown part {asset}, write {asset_id} or {instrumentation_id}',
    ],
    [
      'a header that is none',
      'API_KEY_HEADER=API Key',
      '1: API_KEY_HEADER "API Key" is not the name of a header, write API-Key',
    ],
    [
      'a header that is taken',
      'API_KEY_HEADER=Authorization',
      '1: API_KEY_HEADER "Authorization" is a header that every call has already, write API-Key',
    ],
    [
      'an address without scheme',
      'IDENTITY_URL=id.example.com',
      '1: IDENTITY_URL "id.example.com" is not an address, write it whole, beginning with https:// or http://',
    ],
    [
      'an address of another kind',
      'WEBHOOK_URL=ftp://h/x',
      '1: WEBHOOK_URL "ftp://h/x" begins with ftp://, write an address that begins with https:// or http://',
    ],
    [
      'an address with a password',
      'IDENTITY_URL=https://u:p@h',
      '1: IDENTITY_URL "https://***@h" carries a user name or password, leave them out: TECHNICAL_USERNAME and TECHNICAL_PASSWORD hold them',
    ],
    [
      'a webhook in clear text',
      'WEBHOOK_URL=http://gw.example/',
      '1: WEBHOOK_URL "http://gw.example/" is not https, and the platform calls nothing else, write the public https:// address',
    ],
    [
      'half a certificate',
      'WEBHOOK_TLS_KEY=agent.env',
      '1: WEBHOOK_TLS_KEY is set and WEBHOOK_TLS_CERT is not, set WEBHOOK_TLS_CERT as well, or neither',
      '1: warning: WEBHOOK_TLS_KEY: DIR/agent.env holds no key in PEM form, name a file with a line "-----BEGIN PRIVATE KEY-----"',
    ],
    ['a folder as a certificate', 'PLATFORM_CA=/etc', '1: PLATFORM_CA: /etc is a folder, name the PEM file'],
    [
      'a state folder below a file',
      'STATE_DIR=/etc/passwd/state',
      '1: STATE_DIR "/etc/passwd/state" is no folder: /etc/passwd is a file, name a folder, or remove what stands there',
    ],
    [
      'a host that cannot be',
      'IDENTITY_URL=https://api.example,com',
      '1: IDENTITY_URL "https://api.example,com" names a host that cannot be, write its name with letters, digits, dots and dashes',
    ],
    [
      'quotes of a word processor',
      'CLIENT_APPLICATION=“my gateway”',
      '1: CLIENT_APPLICATION: the value begins with a typographic quote, write " or \', or no quotes',
    ],
    [
      'a file of a Windows editor',
      Buffer.from('\ufeffLOG_LEVEL=info\n', 'utf16le'),
      '1: the file is saved as UTF-16, save the file as UTF-8',
    ],
    [
      'a file that is no text',
      Buffer.from('ELF\u0001\u0000\u0000'),
      '1: the file holds zero bytes, which no text has, save the file as UTF-8',
    ],
    [
      'a certificate that is not there',
      'PLATFORM_CA=/nope/ca.pem',
      '1: PLATFORM_CA: there is no file /nope/ca.pem, write the path of a PEM file',
    ],
    [
      'a budget beyond the platform’s',
      'REQUESTS_PER_MINUTE=600',
      '1: warning: REQUESTS_PER_MINUTE 600 is more than the 500 requests a minute that the platform allows a user, write 400',
    ],
    [
      'quotes that do not close',
      "CLIENT_APPLICATION='x",
      '1: CLIENT_APPLICATION: the quotes do not close at the end of the value, quote the whole value, or none of it',
    ],
    [
      'bytes that are not UTF-8',
      new Uint8Array([35, 10, 65, 61, 0xe4, 10]),
      '2: the file holds bytes that are not UTF-8, save the file as UTF-8',
    ],
    [
      'a file that is something else',
      'x'.repeat(1_000_001),
      '1: the file is larger than 1000000 bytes, shorten it, or check that it is the right file',
    ],
  ]);
});

const T = 'tags:\n  T: { asset: 1, values: { v: {} } }\n';

describe('tags.yaml', () => {
  expectLines('tags.yaml', {}, [
    ['a tab', 'tags:\n\tT: 1\n', '2: a tab stands where YAML wants spaces, indent with spaces'],
    [
      'a space of a web page',
      'tags:\n\u00a0\u00a0T: { asset: 1 }\n',
      '2: a no-break space stands where YAML wants spaces, delete it and type a space',
    ],
    [
      'two faults of one source',
      'sources:\n  plc: { modbus: 192.168.0.5, every: 1, hots: true }\ntags: {}\n',
      '2: "192.168.0.5" is not an address, write for example tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0',
      '2: 1 is not a duration, write for example 500ms or 10s or 5m or 24h',
      '2: unknown member "hots", write "host"',
      '3: warning: the file names no tag, so only values pushed by asset number are taken, add tags: with a tag for each measuring point',
    ],
    [
      'a source whose kind is broken',
      'sources:\n  plc: { modbus: 5 }\ntags: { T: { asset: 1 } }\n',
      '2: 5 is not the address of a Modbus device, write for example tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0',
    ],
    [
      'no space after a colon',
      'tags:\n  T:\n    asset:5\n    values: {}\n',
      '3: there is no space after the colon, write name: value',
    ],
    [
      'a name twice',
      'tags:\n  A: { asset: 1 }\n  A: { asset: 2 }\n',
      '3: "A" stands here a second time, keep one of the two',
    ],
    [
      'several names twice',
      'tags:\n  A: { asset: 1, asset: 2 }\n  "A": { asset: 2 }\n',
      '2: "asset" stands here a second time, keep one of the two',
      '3: "A" stands here a second time, keep one of the two',
    ],
    ['an open bracket', 'tags: { A: { asset: 1 }\n', '2: a bracket that was opened is not closed, close it with }'],
    ['an open quote', 'tags: "A\n', '2: a quote that was opened is not closed, close it, on its line'],
    ['an alias of nothing', 'tags:\n  A: *x\n', '2: there is no &x before this, write the value itself'],
    [
      'aliases that multiply',
      `a: &a [x,x,x,x,x,x,x,x,x,x]\n${'bcdefgh'.replaceAll(/./g, (c) => `${c}: &${c} [${`*${String.fromCharCode(c.charCodeAt(0) - 1)},`.repeat(10)}]\n`)}`,
      '1: the YAML grows too large with its aliases, write it without aliases (*name)',
    ],
    [
      'an alias of itself',
      'tags: &t { A: *t }\n',
      '1: the YAML is nested too deeply, write it without aliases (*name)',
    ],
    [
      'brackets without end',
      `tags: ${'['.repeat(50_000)}`,
      '1: the YAML is nested too deeply, check that it is the right file',
    ],
    ['two documents', `${T}---\n${T}`, '3: a second document begins here, remove the --- line'],
    [
      'a tag of YAML',
      'tags: !x { }\n',
      '1: a word that begins with ! means nothing here, remove the word that begins with !',
    ],
    ['a name that is a list', 'tags: { [a]: 1 }\n', '1: a name here is no text, write name: value'],
    [
      'a list',
      '- tags\n',
      '1: a list is not a mapping of sources and tags, write for example { tags: { FT-101: { asset: 881 } } }',
    ],
    [
      'bytes that are not UTF-8',
      new Uint8Array([0xff]),
      '1: the file holds bytes that are not UTF-8, save the file as UTF-8',
    ],
    [
      'too much',
      `# ${'x'.repeat(4_000_000)}`,
      '1: the file is larger than 4000000 bytes, shorten it, or check that it is the right file',
    ],
    ['an unknown part', `tagz: {}\n${T}`, '1: unknown member "tagz", write "tags"'],
    ['a tag without asset', 'tags:\n  T:\n    values: {}\n', '2: "T" has no member "asset", add asset: 881'],
    ['an asset misspelt', 'tags:\n  T:\n    aset: 1\n', '3: unknown member "aset", write "asset"'],
    [
      'an asset in quotes',
      'tags:\n  T:\n    asset: "881"\n',
      '3: "881" is not the number of an asset, write for example 881',
    ],
    ['an asset 0', 'tags:\n  T: { asset: 0 }\n', '2: 0 is not the number of an asset, write for example 881'],
    [
      'a key that the platform refuses',
      'tags:\n  T: { asset: 1, values: { "a b": {} } }\n',
      '2: "a b" is not a key of the platform (1 to 128 letters, digits, ".", "-", "_"), write for example flow or process_temperature',
    ],
    [
      'a key that is too long',
      `tags:\n  T:\n    asset: 1\n    values:\n      ${'k'.repeat(129)}: {}\n`,
      `5: "${'k'.repeat(60)}…" is not a key of the platform (1 to 128 letters, digits, ".", "-", "_"), write for example flow or process_temperature`,
    ],
    [
      'a group that the platform refuses',
      'tags:\n  T: { asset: 1, values: { v: { group: "a/b" } } }\n',
      '2: "a/b" is not a group of the platform (1 to 128 letters, digits, ".", "-", "_"), write for example process',
    ],
    [
      'two keys that are one',
      'tags:\n  T:\n    asset: 1\n    values:\n      Flow: {}\n      flow: {}\n',
      '6: "flow" and "Flow" on line 5 are one key, which the platform lower-cases, rename one of them',
    ],
    [
      'two tags with one value',
      'tags:\n  T: { asset: 1, values: { Flow: { group: P } } }\n  U: { asset: 1, values: { flow: { group: p } } }\n',
      '3: "flow" of tag "U" is the same value as "Flow" of tag "T" on line 2: key "flow" in group "p" of asset 1, give one of them another asset, key or group',
    ],
    [
      'a unit by its name',
      'tags:\n  T: { asset: 1, values: { v: { unit: bar } } }\n',
      '2: "bar" is not a unit, write for example 12 or { code: degree_celsius }',
    ],
    [
      'a unit misspelt',
      'tags:\n  T: { asset: 1, values: { v: { unit: { cod: bar } } } }\n',
      '2: unknown member "cod", write "code"',
    ],
    [
      'a member misspelt',
      'tags:\n  T: { asset: 1, values: { v: { gruop: x } } }\n',
      '2: unknown member "gruop", write "group"',
    ],
    [
      'a decimal with a comma',
      'sources: { plc: { modbus: "tcp://192.168.0.5:502", unit: 1, every: 1s } }\ntags:\n  T: { asset: 1, values: { flow: { unit: 1, from: plc, register: 10, scale: 0,1 } } }\n',
      '3: unknown member "1", write decimals with a point: a comma begins another member',
    ],
    [
      'a member with no letter of any other',
      'tags: { T: { asset: 1, values: { v: { unit: 1, xy: 2 } } } }\n',
      '1: unknown member "xy", remove it (the nearest known is "at")',
    ],
    [
      'a register without source',
      'tags:\n  T: { asset: 1, values: { v: { register: coil 1 } } }\n',
      '2: "register" says how to read a source, and "v" names none, add from: with the name of a source, or remove it',
    ],
    [
      'no sources',
      'tags:\n  T: { asset: 1, values: { v: { from: plc } } }\n',
      '2: there is no source "plc", add "plc" under sources:',
    ],
  ]);

  const source = (member: string) => `sources:\n  s: ${member}\n${T}`;
  expectLines('tags.yaml', {}, [
    [
      'a source of no kind',
      source('{ every: 1s }'),
      '2: source "s" does not say what it is, add one of modbus: tcp://…, mqtt: mqtt://…, nats: nats://…, sparkplug: mqtt://…, opcua: opc.tcp://…, csv: /srv/tagferry/in, exec: [/opt/site/read-probe], host: true',
    ],
    [
      'a source of an unknown kind',
      source('{ beckhoff: x }'),
      '2: unknown member "beckhoff", remove it (the nearest known is "host")',
    ],
    [
      'a source of two kinds',
      source('{ host: true, simulate: true }'),
      '2: source "s" is host and simulate at once, make a source of each',
    ],
    ['a host that is not true', source('{ host: false }'), '2: false is not true, write for example true'],
    [
      'an address of another kind',
      source('{ modbus: "udp://h" }'),
      '2: "udp://h" begins with udp://, which modbus does not know, write for example tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0',
    ],
    [
      'an address that is none',
      source('{ mqtt: broker }'),
      '2: "broker" is not an address, write for example mqtt://127.0.0.1:1883',
    ],
    [
      'an address with a password',
      source('{ mqtt: "http://u:p@h" }'),
      '2: "http://***@h" begins with http://, which mqtt does not know, write for example mqtt://127.0.0.1:1883',
    ],
    [
      'a Modbus unit',
      source('{ modbus: "tcp://h", unit: 256 }'),
      '2: 256 is not a Modbus unit from 0 to 255, write for example 1',
    ],
    [
      'an interval without unit',
      source('{ modbus: "tcp://h", every: 10 }'),
      '2: 10 is not a duration, write for example 500ms or 10s or 5m or 24h',
    ],
    [
      'an interval of nothing',
      source('{ modbus: "tcp://h", every: 0s }'),
      '2: every "0s" is too short, write from 10ms to 7d, for example 1s',
    ],
    [
      'a member of another kind',
      source('{ mqtt: "mqtt://h", every: 1s }'),
      '2: "every" means nothing for a mqtt source, remove it',
    ],
  ]);

  expectLines('tags.yaml', {}, [
    [
      'a serial line of two speeds',
      'sources:\n  a: { modbus: "rtu:/dev/ttyUSB0", baud: 9600 }\n  b: { modbus: "rtu:/dev/ttyUSB0", parity: odd }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 }, y: { from: b, register: coil 1 } } } }\n',
      '3: baud 19200 is not that of "a" on the same line, 9600, write the same for both: baud: 9600',
      '3: parity odd is not that of "a" on the same line, even, write the same for both: parity: even',
    ],
    [
      'a serial line that names no device',
      'sources:\n  a: { modbus: "rtu:ttyUSB0" }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: "rtu:ttyUSB0" names no device: it begins with / after rtu:, write for example tcp://192.168.0.5:502 or rtu:/dev/ttyUSB0',
    ],
    [
      'a speed of a host',
      'sources:\n  a: { modbus: "tcp://h", baud: 9600 }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: baud 9600 means nothing for tcp:, remove it',
    ],
    [
      'two connections of a serial line',
      'sources:\n  a: { modbus: "rtu:/dev/ttyUSB0", connections: 2 }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: connections 2 means nothing for rtu:, remove it',
    ],
    [
      'a timeout of an hour',
      'sources:\n  a: { modbus: "tcp://h", timeout: 1h }\ntags: { T: { asset: 1, values: { x: { from: a, register: coil 1 } } } }\n',
      '2: timeout "1h" is too short or too long, write from 20ms to 60s, for example 1s',
    ],
  ]);

  const value = (member: string) =>
    `sources: { plc1: { modbus: "tcp://h" }, broker: { mqtt: "mqtt://h" }, self: { host: true }, sim: { simulate: true } }\ntags:\n  X: { asset: 9, values: { a: { from: plc1, register: coil 1 }, b: { from: broker, topic: t }, c: { from: self, reading: load1 }, d: { from: sim } } }\n  T: { asset: 1, values: { v: ${member} } }\n`;
  expectLines('tags.yaml', {}, [
    ['an unknown source', value('{ from: plc2, register: coil 1 }'), '4: there is no source "plc2", write "plc1"'],
    [
      'an unknown source, and a register beyond the last',
      value('{ from: plc2, register: holding 70000 }'),
      '4: there is no source "plc2", write "plc1"',
      '4: register "holding 70000" lies beyond the last address 65535, write the address on the wire, or the number alone, without "holding"',
    ],
    [
      'an unknown source, and a topic that nothing can be matched with',
      value('{ from: brocker, topic: a/#/b }'),
      '4: there is no source "brocker", write "broker"',
      '4: topic "a/#/b" has a # that is not its end, write for example site/#',
    ],
    [
      'an unknown source, and members of two kinds, of which nothing can be said',
      value('{ from: brocker, topic: a/#/b, register: holding 70000 }'),
      '4: there is no source "brocker", write "broker"',
    ],
    [
      'an unknown source, and a unit that is none',
      value('{ from: plc2, register: coil 1, unit: -1 }'),
      '4: there is no source "plc2", write "plc1"',
      '4: -1 is not a unit, write for example 12 or { code: degree_celsius }',
    ],
    [
      'no register',
      value('{ from: plc1 }'),
      '4: a value from the modbus source "plc1" has no "register", add register: holding 1013',
    ],
    [
      'a register misspelt',
      value('{ from: plc1, register: hold 1 }'),
      '4: register "hold 1" is not a Modbus register, write for example holding 0 (the address on the wire), or 40001 (in the manner of Modicon)',
    ],
    [
      'a register beyond the last',
      value('{ from: plc1, register: holding 65535, type: float32 }'),
      '4: register "holding 65535" lies beyond the last address 65535, write holding 0 (the address on the wire), or 40001 (in the manner of Modicon)',
    ],
    [
      'a quality of service that MQTT does not have',
      'sources:\n  b: { mqtt: "mqtt://127.0.0.1:1883", qos: 3 }\ntags:\n  A: { asset: 1, values: { k: {} } }\n',
      '2: 3 is unknown, write 0 or 1 or 2',
    ],
    [
      'a type misspelt',
      value('{ from: plc1, register: input 1, type: float }'),
      '4: "float" is none of int16, uint16, int32, uint32, int64, uint64, float32, float64, bool, write "float32"',
    ],
    [
      'a number in a coil',
      value('{ from: plc1, register: coil 1, type: int16 }'),
      '4: type "int16" does not fit coil registers, which hold one bit, write bool, or leave it out',
    ],
    [
      'a number that Modicon does not know',
      value('{ from: plc1, register: 20001 }'),
      '4: register 20001 is no number in the manner of Modicon (40001, 30001, 10001, 1 to 9999; with six digits 400001), write the table and the address on the wire: holding 20001',
    ],
    [
      'a number of Modicon behind a table',
      value('{ from: plc1, register: holding 400001 }'),
      '4: register "holding 400001" lies beyond the last address 65535, write the address on the wire, or the number alone, without "holding"',
    ],
    [
      'the bits of 64 for a number of 32',
      value('{ from: plc1, register: input 1, type: int32, byte_order: HGFEDCBA }'),
      '4: byte_order "HGFEDCBA" has eight bytes, and int32 has fewer, write one of ABCD, CDAB, BADC, DCBA',
    ],
    [
      'a truth in a register without a bit',
      value('{ from: plc1, register: input 1, type: bool }'),
      '4: type "bool" does not fit input registers, which hold 16 bits, add bit: 0 to 15, or write uint16',
    ],
    [
      'a scale of nothing',
      value('{ from: plc1, register: input 1, scale: 0 }'),
      '4: scale 0 leaves nothing of the value, write for example 0.1, or leave it out',
    ],
    [
      'a topic from a PLC',
      value('{ from: plc1, register: input 1, topic: x }'),
      '4: "topic" does not fit "plc1", which is a modbus source, remove it; modbus values have type, byte_order, bit',
    ],
    [
      'a wildcard that stands for half a level',
      value('{ from: broker, topic: site/ft+ }'),
      '4: topic "site/ft+" holds a wildcard (+ or #) that does not stand for a whole level, write for example site/+/flow',
    ],
    [
      'a # in the middle',
      value('{ from: broker, topic: "site/#/flow" }'),
      '4: topic "site/#/flow" has a # that is not its end, write for example site/#',
    ],
    [
      'a member without a group',
      'sources: { broker: { mqtt: "mqtt://h", member: 1/2 } }\ntags: { T: { asset: 1, values: { v: { from: broker, topic: t } } } }\n',
      '1: "1/2": member says which agent of a group this is, and the source has no group, add share: (MQTT) or durable: (NATS), or remove it',
    ],
    [
      'a member that is none',
      'sources: { broker: { mqtt: "mqtt://h", share: gw, member: 3/2 } }\ntags: { T: { asset: 1, values: { v: { from: broker, topic: t } } } }\n',
      '1: member "3/2" is not a number of a group, write for example 2/3',
    ],
    [
      'a group whose values have no time',
      'sources: { broker: { mqtt: "mqtt://h", share: gw } }\ntags: { T: { asset: 1, values: { v: { from: broker, topic: t } } } }\n',
      '1: warning: "mqtt://h": agents of the group "gw" give the same time to two values of one series, of which the platform keeps one, add time: to the values, or member: 1/2 with another number on each gateway',
    ],
    [
      'a stream whose times do not count',
      'sources: { broker: { nats: "nats://h", durable: gw, time_from: arrival } }\ntags: { T: { asset: 1, values: { v: { from: broker, subject: t } } } }\n',
      '1: warning: "nats://h": agents of the group "gw" give the same time to two values of one series, of which the platform keeps one, add time: to the values, or member: 1/2 with another number on each gateway',
    ],
    [
      'a shared subscription',
      value('{ from: broker, topic: $share/gw/site/+ }'),
      '4: topic "$share/gw/site/+" begins with a shared subscription, write share: with the group at the source, and topic: site/+',
    ],
    [
      'a path that is no pointer',
      value('{ from: broker, topic: x, at: temp }'),
      '4: "temp" is not a JSON pointer, write for example /temp',
    ],
    [
      'an unknown reading',
      value('{ from: self, reading: lod1 }'),
      '4: reading "lod1" is no reading of this machine, write "load1"',
    ],
    [
      'a reading with too much',
      value('{ from: self, reading: "load1:x" }'),
      '4: reading "load1:x" takes nothing after a colon, write load1',
    ],
    [
      'low above high',
      value('{ from: sim, low: 5, high: 1 }'),
      '4: low 5 is not below high 1, write a low that is below high',
    ],
  ]);
});

const TAGS = {
  'tags.yaml':
    'sources: { broker: { mqtt: "mqtt://h" } }\ntags: { FT-101: { asset: 1, values: { v: { from: broker, topic: t } } } }\n',
};
const rule = (rest: string) => `reactions:\n  - name: r\n${rest.replaceAll(/^/gm, '    ')}\n`;
const action = (text: string) => rule(`on: threshold_reached\ndo:\n  - ${text}`);

describe('an address', () => {
  it('with the path that every call begins with itself is warned of', () => {
    const { lines, configuration } = check({}, { ...ENOUGH, PLATFORM_URL: 'https://api.example.com/v1/' });
    expect(configuration).toBeDefined();
    expect(lines).toEqual([
      'environment: warning: PLATFORM_URL "https://api.example.com/v1" ends with /v1, and every call begins with /v1, /v2 or /oauth itself, leave out /v1',
    ]);
  });
});

describe('a certificate', () => {
  it('in DER, as Windows exports it, is warned of with the command that converts it', () => {
    const { lines, configuration } = check({
      'agent.env': 'PLATFORM_CA=ca.cer\n',
      'ca.cer': Uint8Array.of(0x30, 0x82, 0x01, 0x0a, 0x02),
    });
    expect(configuration).toBeDefined();
    expect(lines).toEqual(
      [
        '1: warning: PLATFORM_CA: DIR/ca.cer holds no certificate in PEM form, it is DER: run openssl x509 -in DIR/ca.cer -out DIR/ca.cer.pem, and name that file',
      ].map((line) => `DIR/agent.env:${line}`),
    );
  });
});

describe('reactions.yaml', () => {
  expectLines('reactions.yaml', TAGS, [
    [
      'no list',
      'reactions: { a: 1 }\n',
      '1: a mapping is not a list of reactions, write for example [{ name: note, on: threshold_reached, do: [{ log: warn }] }]',
    ],
    [
      'a list without its name',
      '- name: a\n',
      '1: a list is not a mapping with a list of reactions, write for example { reactions: [] }',
    ],
    [
      'an entry that is none',
      'reactions:\n  - hello\n',
      '2: "hello" is not a reaction, write for example { name: note, on: threshold_reached, do: [{ log: warn }] }',
    ],
    ['nothing to do', rule('on: threshold_reached'), '2: entry 1 has no member "do", add do: [{ log: warn }]'],
    [
      'nothing to do at all',
      rule('on: threshold_reached\ndo: []'),
      '4: an empty list is not a list of actions, write for example [{ log: warn }]',
    ],
    [
      'a member misspelt',
      rule('on: threshold_reached\ncooldwon: 1s\ndo: [{ log: warn }]'),
      '4: unknown member "cooldwon", write "cooldown"',
    ],
    [
      'a name twice',
      `${rule('on: "*"\ndo: [{ log: warn }]')}  - { name: r, on: "*", do: [{ log: warn }] }\n`,
      '5: the name "r" stands already on line 2, give each reaction a name of its own',
    ],
    [
      'an unknown event',
      rule('on: treshold_reached\ndo: [{ log: warn }]'),
      '3: there is no event type "treshold_reached", write "threshold_reached"',
    ],
    [
      'an unknown event of several',
      rule('on:\n  - asset_appeared\n  - asset_disapeared\ndo: [{ log: warn }]'),
      '5: there is no event type "asset_disapeared", write "asset_disappeared"',
    ],
    [
      'an unknown tag',
      rule('on: threshold_reached\nif: { tag: FT-110 }\ndo: [{ log: warn }]'),
      '4: there is no tag "FT-110" in tags.yaml, write "FT-101"',
    ],
    [
      'a tag that is no name',
      rule('on: threshold_reached\nif: { tag: { above: 1 } }\ndo: [{ log: warn }]'),
      '4: a mapping is not the name of a tag, write one name, or a list of names',
    ],
    [
      'a condition misspelt',
      rule('on: threshold_reached\nif: { data.value: { abov: 1 } }\ndo: [{ log: warn }]'),
      '4: unknown member "abov", write "above"',
    ],
    [
      'a bound that is text',
      rule('on: threshold_reached\nif: { data.value: { above: "1" } }\ndo: [{ log: warn }]'),
      '4: "1" is not a number, write for example 20',
    ],
    [
      'a condition of nothing',
      rule('on: threshold_reached\nif: { data.value: [] }\ndo: [{ log: warn }]'),
      '4: an empty list is not a condition, write for example high or [high, low] or { above: 20 } or { above: 20, below: 80 }',
    ],
    [
      'a path with a space',
      rule('on: threshold_reached\nif: { "data value": 1 }\ndo: [{ log: warn }]'),
      '4: "data value" is not a path of member names with dots between them, write for example data.value',
    ],
    [
      'a time without unit',
      rule('on: threshold_reached\ncooldown: 60\ndo: [{ log: warn }]'),
      '4: 60 is not a duration, write for example 500ms or 10s or 5m or 24h',
    ],
    ['an action of nothing', action('{}'), '5: the action does not say what to do, add one of run, post, publish, log'],
    ['an action misspelt', action('pubish: { to: broker, topic: x }'), '5: unknown member "pubish", write "publish"'],
    [
      'two actions in one',
      action('{ log: warn, post: "http://h" }'),
      '5: one action does post and log, begin each with a dash of its own',
    ],
    [
      'a command as text',
      action('run: /bin/x FT-101'),
      '5: "/bin/x FT-101" is not a command as a list, write for example [/opt/site/close-valve, FT-101]',
    ],
    [
      'a program that is not there',
      action('run: [/nope/x]'),
      '5: warning: there is no program /nope/x, install it, or write the path of one',
    ],
    [
      'a timeout of nothing',
      action('{ run: [x], timeout: 0s }'),
      '5: timeout "0s" leaves no time, write from 1ms to 1h, for example 10s',
    ],
    [
      'a timeout that does not belong',
      action('{ log: warn, timeout: 1s }'),
      '5: "timeout" means nothing for log, remove it',
    ],
    ['a level misspelt', action('log: warning'), '5: "warning" is none of debug, info, warn, error, write "warn"'],
    [
      'an address that is none',
      action('post: alarm'),
      '5: "alarm" is not an address, write for example http://127.0.0.1:1880/alarm',
    ],
    [
      'a header with two lines',
      action('{ post: "http://h", headers: { X: "a\\r\\nb" } }'),
      '5: the value is not the text of a header, write for example north',
    ],
    [
      'an unknown broker',
      action('publish: { to: brokr, topic: x }'),
      '5: there is no source "brokr" in tags.yaml, write "broker"',
    ],
    [
      'a template misspelt',
      action('{ post: "http://h", body: { x: { y: ["{{content.data.valeu}}", "{{ content.data.value }}"] } } }'),
      '5: warning: {{content.data.valeu}} leaves nothing: threshold_reached has no such member, write "content.data.value"',
    ],
    [
      'a template without content',
      action('{ post: "http://h", body: "{{data.value}} at {{occurred_at}}" }'),
      '5: warning: {{data.value}} leaves nothing: threshold_reached has no such member, write {{content.data.value}}',
    ],
    [
      'a template in a topic that no type has anything for',
      rule(
        'on: [asset_appeared, node_appeared]\ndo: [{ publish: { to: broker, topic: "a/{{content.asset.id}}/{{content.user.id}}/{{content.nod.id}}" } }]',
      ),
      '4: warning: {{content.nod.id}} leaves nothing: these event types have no such member, write "content.node.id"',
    ],
    ['no topic', action('publish: { to: broker }'), '5: "publish" has no member "topic", add topic: site/alarms'],
    [
      'a topic with a wildcard',
      action('publish: { to: broker, topic: a/+ }'),
      '5: topic "a/+" holds a wildcard (+ or #), write one topic, for example site/alarms',
    ],
  ]);

  it('publishing to a source that is no broker', () => {
    const tags =
      'sources: { plc: { modbus: "tcp://h" } }\ntags: { T: { asset: 1, values: { v: { from: plc, register: coil 1 } } } }\n';
    expect(check({ 'tags.yaml': tags, 'reactions.yaml': action('publish: { to: plc, topic: x }') }).lines).toEqual([
      'DIR/reactions.yaml:5: "plc" is a modbus source, not a broker, name a source with mqtt:',
    ]);
  });
});

describe('all problems', () => {
  it('of a file in which a name stands twice come with it', () => {
    const tags = 'tags:\n  T: { asset: 1 }\n  T: { asset: 2 }\n  U: { aset: 3 }\n';
    const { lines } = check({
      'tags.yaml': tags,
      'reactions.yaml': 'reactions:\n  - { name: r, on: x, do: [{ log: warn }] }\n',
    });
    expect(lines.map((line) => line.split(',')[0])).toEqual([
      'DIR/tags.yaml:3: "T" stands here a second time',
      'DIR/tags.yaml:4: unknown member "aset"',
      'DIR/reactions.yaml:2: there is no event type "x"',
    ]);
  });

  it('of all files come at once, by file and line, with their parts', () => {
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
      reason: '"x" is not the number of an asset',
      instead: 'write for example 881',
      severity: 'error',
    });
  });

  it('are lines, never a stack, whatever bytes the files hold', () => {
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
