import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readLineProtocol } from '../../../src/sources/formats/line-protocol.ts';
import { PushListener } from './push-listener.ts';
import { makeIntakeBench, seeded, tagOf } from './sink-double.ts';

const MS = '?precision=ms';
const AT_MS = 1_795_219_200_000;
let listener: PushListener;

beforeEach(async () => {
  listener = new PushListener();
  await listener.listen();
});
afterEach(() => listener.dispose());

/** Returns the quoted lines and their problems. */
const rejectedOf = (error: unknown) => [...String(error).matchAll(/line (\d+) "/g)].map(([, number]) => Number(number));

describe('line protocol request', () => {
  it('stores the valid values, and quotes the other lines in a partial write error', async () => {
    const lines = `FT-101 flow=1 ${AT_MS}\nfoo bar=2\nFT-101 flow="x",temperature=3\nno fields\nFT-101 flow=4`;
    const two = await listener.lines(lines, MS);
    expect([two.status, two.body.code, listener.stored]).toEqual([400, 'invalid', [1, 3, 4]]);
    expect(two.body.message).toMatch(/^partial write: 3 lines .* dropped=3$/);
    expect(two.body.message).toContain('line 2 "foo bar=2": tag "foo" is not in tags.yaml');
    expect(rejectedOf(two.body.message)).toEqual([2, 3, 4]);
    const one = await listener.send(`/write${MS}`, lines);
    expect([one.status, listener.stored]).toEqual([400, [1, 3, 4, 1, 3, 4]]);
    expect([one.body.error, one.headers['x-influxdb-error']]).toEqual([two.body.message, two.body.message]);
  });

  it('responds 204 if all lines are valid, regardless of the parameter partial', async () => {
    const good = await listener.send('/write?partial=false', 'FT-101 flow=1');
    expect([good.status, good.text, good.headers['x-influxdb-version']]).toEqual([204, '', '1.8.10']);
    expect((await listener.lines('FT-101 flow=1\nx y=2', '?partial=false')).status).toBe(400);
    expect([(await listener.lines('')).status, listener.stored]).toEqual([204, [1, 1]]);
  });

  it('quotes at most ten lines with their reasons, and reports the total number', async () => {
    const text = `mem ${Array.from({ length: 200 }, (_, at) => `f${at}=1`).join(',')}\nx y=1\n`.repeat(20);
    const { error } = (await listener.lines(text)).body;
    expect(rejectedOf(error)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(error).toMatch(/line 10 "x y=1": tag "x" is not in tags.yaml; … dropped=40$/);
  });

  it('rejects all values of a line that ends with invalid text, or is longer than 64 KiB', async () => {
    const long = `FT-101,note=${'x'.repeat(65_536)} flow=9`;
    const text = `FT-101 flow=1,temperature=2 17x\nFT-101 flow=3\n${long}\nFT-101 flow=4 99999999999999999999\nFT-101 flow=5`;
    const { error } = (await listener.lines(text, '?precision=s')).body;
    expect([rejectedOf(error), listener.stored]).toEqual([
      [1, 3, 4],
      [3, 5],
    ]);
  });

  it('continues after an unterminated string, and after text that is not UTF-8', async () => {
    expect((await listener.lines('FT-101 flow="x\nFT-101 flow=1\nFT-101 flow=2')).status).toBe(400);
    const bytes = Buffer.from('FT-101 flow=3\n\xff flow=1\nFT-101 flow=4', 'latin1');
    expect(rejectedOf((await listener.send('/write', bytes)).body.error)).toEqual([2]);
    expect(listener.stored).toEqual([1, 2, 3, 4]);
  });

  it('supports the precisions of both versions, and uses the arrival time for lines without a timestamp', async () => {
    const times = {
      ns: `${AT_MS}999999`,
      n: `${AT_MS}000000`,
      us: `${AT_MS}999`,
      u: `${AT_MS}000`,
      '%C2%B5': `${AT_MS}000`,
      ms: `${AT_MS}`,
      s: `${AT_MS / 1_000}`,
      m: '29920320',
      h: '498672',
      '': `${AT_MS}000000`,
    };
    for (const [precision, time] of Object.entries(times)) {
      const response = await listener.send(`/write?precision=${precision}`, `GW-01 load=1 ${time}`);
      expect([precision, response.status]).toEqual([precision, 204]);
    }
    expect(new Set(listener.bench.sink.stored.map(({ timeMs }) => timeMs))).toEqual(new Set([AT_MS]));
    expect((await listener.lines('GW-01 load=1', '?precision=fortnight')).status).toBe(400);
    await listener.lines('GW-01 load=1');
    const timeMs = listener.bench.clock.wallMs();
    expect(listener.bench.sink.stored.at(-1)).toMatchObject({ timeMs, stampedHere: true });
  });

  it('rejects implausible timestamps, and suggests the matching precision', async () => {
    listener.bench.times.earliestMs = Date.UTC(2000, 0, 1);
    const errorOf = async (time: number | string, query = '') =>
      (await listener.lines(`FT-101 flow=1 ${time}`, query)).body.error;
    const seconds = AT_MS / 1_000;
    expect(await errorOf(seconds)).toContain('use precision=s');
    expect(await errorOf(seconds, '?precision=ns')).toContain('use precision=s');
    expect(await errorOf(AT_MS, '?precision=ns')).toContain('use precision=ms');
    expect(await errorOf(seconds, MS)).toContain('use precision=s');
    expect(await errorOf(`${AT_MS}000000`, MS)).toContain('use precision=ns');
    expect(await errorOf(8, '?precision=s')).toContain('1970-01-01T00:00:08.000Z is before 2000-01-01');
    expect(await errorOf(-1, MS)).toContain('is before 2000-01-01');
    expect(listener.stored).toEqual([]);
    expect((await listener.lines(`FT-101 flow=1 ${seconds}`, '?precision=s')).status).toBe(204);
  });

  it('accepts CRLF line endings, comments, and spaces around every part', async () => {
    const text = 'FT-101 flow=1 5\r\n\r\n  FT-101,t=v   flow=2,temperature=3\t 6  \r\n# x "\r\nGW-01 load=4\r';
    expect((await listener.lines(text, MS)).status).toBe(204);
    expect(listener.stored).toEqual([1, 2, 3, 4]);
  });

  it.each([
    ['1.5', 1.5],
    ['-3i', -3],
    ['7u', 7],
    ['1e3', 1_000],
    ['9007199254740991i', 9_007_199_254_740_991],
    ['T', 1],
    ['false', 0],
  ])('reads the field value %s as %d', async (text, value) => {
    expect((await listener.lines(`FT-101 flow=${text}`)).status).toBe(204);
    expect(listener.stored).toEqual([value]);
  });

  it.each([
    ...['1.5x', 'NaN', 'Inf', '--1', '1e', '1e400', '.', '-', '1.5i', '-1u', 'i', 'tRuE', '0x10', '1_000'],
    ...['9007199254740993i', '18446744073709551615u'],
  ])('rejects only the field with the value %s', async (text) => {
    const { error } = (await listener.lines(`FT-101 flow=${text},temperature=2`)).body;
    expect([rejectedOf(error), listener.stored]).toEqual([[1], [2]]);
  });

  it.each([
    ...['FT-101', 'FT-101 ', ' ,x=1 flow=1', 'FT-101,x flow=1', 'FT-101,x= flow=1', 'FT-101,=1 flow=1'],
    ...['FT-101,x=1=2 flow=1', 'FT-101 flow', 'FT-101 flow=', 'FT-101 =1', 'FT-101 flow=1,', 'FT-101 flow=1,,c=2'],
    ...['FT-101 flow=1 x', 'FT-101 flow=1 5 6', 'FT-101 flow=1 5x', 'FT-101 flow="x"y', 'FT-101 flow=1 1.5'],
    ...['FT-101,x=1', 'FT-101 flow=1 -', 'FT-101 flow=1 123456789012345678901'],
  ])('rejects the line %j and stores the next one', async (text) => {
    expect(rejectedOf((await listener.lines(`${text}\nFT-101 flow=2`)).body.error)).toEqual([1]);
    expect(listener.stored).toEqual([2]);
  });

  it('reads names with any character, escaped where necessary', async () => {
    const random = seeded(42);
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
    const nameOf = () => Array.from({ length: 1 + Math.floor(random() * 8) }, () => pick([...'aZ9_-é/,= \\'])).join('');
    const names = [...new Set(Array.from({ length: 500 }, nameOf))].filter((name) => !name.includes('\\'));
    const escaped = (name: string) => name.replaceAll(/[,= ]/g, '\\$&');
    const tags = new Map(names.map((name, at) => [name, tagOf(name, at + 1, [{ key: 'v' }])]));
    await listener.dispose();
    listener = new PushListener(tags);
    await listener.listen();
    const lines = names.map((name, at) => {
      const influxTags = random() < 0.5 ? `,${escaped(pick(names))}=${escaped(pick(names))}` : '';
      return `${escaped(name).replaceAll('\\=', '=')}${influxTags} v=${at}\n`;
    });
    expect((await listener.lines(lines.join(''))).status).toBe(204);
    expect(listener.addresses).toEqual(names.map((_, at) => `${at + 1}//v/ ${at}`));
  });
});

describe('line protocol tag', () => {
  it('is read from the Influx tag named in INGEST_TAG_FROM', async () => {
    listener.push.setRules({ token: undefined, lines: { tagFrom: 'device' } });
    const text = 'modbus,device=FT-101,host=gw flow=1\nmodbus,host=gw,device=GW-01 load=2\nFT-101,host=gw flow=3';
    expect((await listener.lines(text)).body.error).toContain('has no tag "device"');
    expect(listener.addresses).toEqual(['881/process/flow/#12 1', '900//load/ 2']);
    listener.push.setRules({ token: undefined });
    expect((await listener.lines('FT-101,device=GW-01 flow=4')).status).toBe(204);
  });
});

describe('line protocol series that differ only in an Influx tag', () => {
  it.each([
    ['without times', ['FT-101,host=a flow=1', 'FT-101,host=b flow=2', 'FT-101,host=a flow=3'], 1],
    ['at one time', [`FT-101,host=a flow=1 ${AT_MS}000000`, `FT-101,host=b flow=2 ${AT_MS}000000`], 1],
    ['at different times', [`FT-101,host=a flow=1 ${AT_MS}000000`, `FT-101,host=b flow=2 ${AT_MS + 1}000000`], 0],
    [
      'at two times',
      ['a', 'b'].flatMap((host) => [0, 1].map((ms) => `FT-101,host=${host} flow=1 ${AT_MS + ms}000000`)),
      2,
    ],
    ['with tags in another order', ['FT-101,a=1,b=2 flow=1', 'FT-101,b=2,a=1 flow=2'], 0],
  ])('have the same rejections in one block and in several blocks: %s', (_, lines, rejected) => {
    const countIn = (blocks: readonly string[]) => {
      const { intake } = makeIntakeBench();
      const options = { msOfUnit: 1e-6, isUnitGuessed: true, tagFrom: undefined, heads: new WeakMap() };
      return blocks.reduce((sum, block) => {
        const draft = intake.draft({ isPartial: true });
        readLineProtocol(Buffer.from(block), options, draft);
        return sum + draft.problems.count;
      }, 0);
    };
    const [one, several] = [countIn([`${lines.join('\n')}\n`]), countIn(lines.map((line) => `${line}\n`))];
    expect([one, several]).toEqual([rejected, rejected]);
  });

  const keys = ['usage', 'usage_cpu0', 'usage_cpu1', 'usage_cpu-total', 'usage__var_log'];
  const lines = (timeMs: number) =>
    ['cpu,cpu=cpu0 usage=1', 'cpu,cpu=cpu1 usage=2', 'cpu,cpu=cpu-total usage=1.5']
      .map((text) => `${text} ${timeMs}\n`)
      .join('');

  beforeEach(async () => {
    await listener.dispose();
    listener = new PushListener(
      new Map([
        [
          'cpu',
          tagOf(
            'cpu',
            7,
            keys.map((key) => ({ key })),
          ),
        ],
      ]),
    );
    await listener.listen();
  });

  it('are stored only for the first series, and reported with the Influx tag', async () => {
    for (const timeMs of [AT_MS, AT_MS + 1]) {
      const { error } = (await listener.lines(lines(timeMs), MS)).body;
      expect(rejectedOf(error)).toEqual([2, 3]);
      expect(error).toContain('Influx tag "cpu": INGEST_KEY_FROM={field}_{cpu}');
    }
    expect(listener.stored).toEqual([1, 1]);
  });

  it('are reported if they have no timestamp, and accepted if their tags or timestamps show no conflict', async () => {
    expect(rejectedOf((await listener.lines('cpu,cpu=a usage=1\ncpu,cpu=b usage=2')).body.error)).toEqual([2]);
    const same = `cpu,a=1,b=2 usage=1e0 ${AT_MS}\ncpu,b=2,a=1 usage=2 ${AT_MS}`;
    expect((await listener.lines(same, MS)).status).toBe(204);
    const later = `cpu,state=ok usage=1 ${AT_MS}\ncpu,state=alarm usage=2 ${AT_MS + 1}`;
    expect((await listener.lines(later, MS)).status).toBe(204);
  });

  it('are stored under separate keys with INGEST_KEY_FROM', async () => {
    const rules = (keyFrom: string) => listener.push.setRules({ token: undefined, lines: { keyFrom } });
    rules('{field}_{cpu}');
    expect((await listener.lines(`${lines(AT_MS)}cpu usage=3`, MS)).status).toBe(204);
    rules('{field}_{path}');
    expect((await listener.lines('cpu,path=/var/log usage=4\ncpu usage=5')).status).toBe(204);
    const expected = [
      'usage_cpu0/ 1',
      'usage_cpu1/ 2',
      'usage_cpu-total/ 1.5',
      'usage/ 3',
      'usage__var_log/ 4',
      'usage/ 5',
    ];
    expect(listener.addresses).toEqual(expected.map((end) => `7//${end}`));
  });
});
