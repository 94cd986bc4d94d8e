/** A reload reads the files in a worker thread, with limited time and memory, regardless of their content. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readConfigurationAside } from '../../../src/agent/configuration-reading.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { ConfigurationError } from '../../../src/base/errors.ts';
import { loadConfiguration } from '../../../src/config/configuration.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const SOUND =
  'PLATFORM_URL=http://127.0.0.1:1\nCLIENT_ID=a\nCLIENT_SECRET=b\nTECHNICAL_USERNAME=c\nTECHNICAL_PASSWORD=d\n';
const ONE_TAG = 'tags:\n  T:\n    asset: 1\n    values:\n      a: { unit: 1 }\n';
const MANY = 600_000;

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'reading-'));
  put('agent.env', SOUND);
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const put = (file: string, text: string) => writeFileSync(join(directory, file), text);
const aside = () => readConfigurationAside({ directory, environment: {} }, systemClock);
const problemsOf = async () => {
  try {
    await aside();
    return [];
  } catch (error) {
    if (error instanceof ConfigurationError) return error.problems;
    throw error;
  }
};

describe('configuration reader in a worker thread', () => {
  it('returns the same configuration as reading in the main thread', async () => {
    put(
      'tags.yaml',
      `sources:
  plc: { modbus: "tcp://127.0.0.1:502", unit: 1, every: 1s }
  broker: { mqtt: "mqtt://127.0.0.1:1883" }
  self: { host: true, every: 10s }
tags:
  FT-101:
    asset: 881
    instrumentation: 4711
    values:
      level: { unit: 12, from: plc, register: holding 1013, type: float32 }
      flow: { unit: { code: m3 }, from: broker, topic: a/b, at: /v }
      load: { from: self, reading: load1 }
`,
    );
    put(
      'reactions.yaml',
      `reactions:
  - name: close
    on: threshold_reached
    if: { tag: FT-101, data.value: { above: 20 } }
    do: [ { run: [/bin/true] }, { post: "http://127.0.0.1:1/a", body: { x: [1] } }, { publish: { to: broker, topic: t } } ]
`,
    );
    const inPlace = loadConfiguration({ directory, environment: {}, kinds: SOURCE_KINDS, actions: ACTION_KINDS });
    expect(inPlace.tags.tags.size).toBe(1);
    // Objects from another thread have no prototypes.
    expect(structuredClone(await aside())).toEqual(structuredClone(inPlace));
  });

  it('reports the same problems as reading in the main thread', async () => {
    put('tags.yaml', 'tags:\n  T: { asset: x }\n  U: { asset: 1, values: { a: { from: nowhere } } }\n');
    put('agent.env', `${SOUND}POST_INTERVAL=10\n`);
    const inPlace = (() => {
      try {
        loadConfiguration({ directory, environment: {}, kinds: SOURCE_KINDS, actions: ACTION_KINDS });
      } catch (error) {
        return (error as ConfigurationError).problems;
      }
    })();
    expect(inPlace!.length).toBeGreaterThan(2);
    expect(await problemsOf()).toEqual(inPlace);
  });

  // A quadratic check would take minutes for each of these.
  it.each([
    ['one long value', `${ONE_TAG}  X: ${'a'.repeat(MANY)}\n`],
    ['one long name', `${ONE_TAG}  ${'a'.repeat(MANY)}: 1\n`],
    ['one line of opening brackets', `${ONE_TAG}  X: [${'[$'.repeat(MANY / 4)}\n`],
    ['an unterminated address', `${ONE_TAG}  X: "${'a://b:c'.repeat(MANY / 7)}"\n`],
    ['blank lines', `${ONE_TAG}${'\n'.repeat(MANY / 4)}`],
    ['aliases', `a: &a 1\nb: [${'*a,'.repeat(20_000)}]\n`],
  ])('takes time proportional to the input length: %s', { timeout: 60_000 }, async (_, text) => {
    put('tags.yaml', text);
    const problems = await problemsOf();
    expect(problems.length).toBeLessThanOrEqual(25);
  });

  it('rejects nested YAML aliases and excessive nesting', async () => {
    const bomb = Array.from({ length: 9 }, (_, i) => `a${i + 1}: &a${i + 1} [${`*a${i},`.repeat(9)}]`);
    put('tags.yaml', `a0: &a0 [1,1,1,1,1,1,1,1,1]\n${bomb.join('\n')}\n`);
    expect((await problemsOf()).join()).toContain('aliases');
    put('tags.yaml', `tags: ${'{a: '.repeat(5_000)}\n`);
    expect((await problemsOf()).length).toBeGreaterThan(0);
    put('tags.yaml', `tags: ${'['.repeat(30_000)}${']'.repeat(30_000)}\n`);
    expect((await problemsOf()).length).toBeGreaterThan(0);
  });

  it('limits the number of reported problems', async () => {
    put('agent.env', `${SOUND}${Array.from({ length: 5_000 }, (_, i) => `KEY_${i}=1`).join('\n')}\n`);
    const problems = await problemsOf();
    expect(problems.length).toBeLessThanOrEqual(150);
    expect(problems.join('\n')).toContain('more');
  });

  it('keeps the event loop responsive and fails on a timeout', async () => {
    const clock = new ManualClock(0, 1);
    put('tags.yaml', ONE_TAG);
    const reading = readConfigurationAside({ directory, environment: {} }, clock, 1_000);
    const refused = expect(reading).rejects.toThrow(ConfigurationError);
    // Only the clock advances; the thread has not responded yet.
    await clock.advance(1_000);
    await refused;
  });
});
