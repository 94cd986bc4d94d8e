import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { parseHostReading } from '../../../src/contract/host-readings.ts';
import { HostSource, type HostSpec, type HostValue } from '../../../src/sources/host/host-source.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import type { SourceContext } from '../../../src/sources/source-kind.ts';
import { makeIntakeBench, originOf, tagOf, until } from './sink-double.ts';

const EVERY_MS = 2_000;

/** A source of readings from files below `root`. `values` polls once, and returns the values by reading. */
function readerOf(readings: string[], root: string) {
  const from = (reading: string) => originOf('host', 'self', { reading }, { everyMs: EVERY_MS });
  const values = readings.map((reading, at) => ({ key: `r${at}`, from: from(reading) }));
  const tags = new Map([['GW-01', tagOf('GW-01', 900, values)]]);
  const bench = makeIntakeBench(tags);
  const points = pointsOf<HostValue>(tags, 'self', bench.intake);
  const warnings: unknown[] = [];
  const log = silentLogger();
  log.warn = ((fields: unknown) => warnings.push(fields)) as typeof log.warn;
  const gate = bench.gateOf('self');
  let polls = 0;
  const record = gate.record.bind(gate);
  gate.record = (...args) => {
    record(...args);
    polls++;
  };
  const context = { source: { name: 'self' }, points, gate, status: gate.status, clock: bench.clock, log };
  const source = new HostSource(context as unknown as SourceContext<HostSpec, HostValue>, root);
  onTestFinished(() => source.stop());
  let isStarted = false;
  const pollOnce = async () => {
    const stored = bench.sink.stored.length;
    const before = polls;
    // Polls begin at multiples of their interval.
    await bench.clock.advance(EVERY_MS - (bench.clock.monotonicMs() % EVERY_MS));
    if (!isStarted) source.start();
    isStarted = true;
    await until(() => polls > before);
    const readingOf = (address: string) => readings[Number(address.split('/')[2]!.slice(1))]!;
    return Object.fromEntries(bench.sink.stored.slice(stored).map(({ address, value }) => [readingOf(address), value]));
  };
  return { values: pollOnce, warnings };
}

function machine(files: Record<string, string>): { root: string; write: (files: Record<string, string>) => void } {
  const root = mkdtempSync(join(tmpdir(), 'tagferry-host-'));
  const write = (more: Record<string, string>) => {
    for (const [path, text] of Object.entries(more)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
  };
  write(files);
  return { root, write };
}

const NET_HEAD = 'Inter-|   Receive\n face |bytes\n';

describe('host source', () => {
  it('reads values from kernel files', async () => {
    const { root, write } = machine({
      'proc/stat': 'cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3\n',
      'proc/net/dev': `${NET_HEAD}    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n  eth0:1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n wlan0: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n`,
      'sys/class/thermal/thermal_zone0/type': 'x86_pkg_temp\n',
      'sys/class/thermal/thermal_zone0/temp': '45500\n',
      'sys/class/thermal/thermal_zone1/type': 'acpitz\n',
      'sys/class/thermal/thermal_zone1/temp': '-5000\n',
      'sys/class/thermal/thermal_zone2/type': 'asleep\n',
    });
    const temperatures = ['temperature', 'temperature:acpitz', 'temperature:1'];
    const readings = ['cpu_share', 'network_rx', 'network_tx:eth0', ...temperatures];
    const { values, warnings } = readerOf(readings, root);
    expect(await values()).toEqual({ temperature: 45.5, 'temperature:acpitz': -5, 'temperature:1': -5 });
    write({
      'proc/stat': 'cpu  130 0 100 760 110 0 0 0 50 0\n',
      'proc/net/dev': `${NET_HEAD}    lo: 5999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n  eth0:3000 1 0 0 0 0 0 0 700 1 0 0 0 0 0 0\n wlan0: 110 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n`,
    });
    expect(await values()).toMatchObject({ cpu_share: 0.3, network_rx: 1050, 'network_tx:eth0': 100 });
    write({ 'proc/net/dev': `${NET_HEAD}  eth0:5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n` });
    expect(Object.keys(await values())).not.toContain('network_rx');
    expect(warnings).toEqual([]);
  });

  it('counts the bytes of each interface separately, because one may be recreated or removed', async () => {
    const devices = (counts: Record<string, number>) => ({
      'proc/net/dev':
        NET_HEAD +
        Object.entries(counts)
          .map(([name, bytes]) => `${name}: ${bytes} 0 0 0 0 0 0 0 0\n`)
          .join(''),
    });
    const { root, write } = machine(devices({ eth0: 1_000, wwan0: 9_000, veth1: 500 }));
    const { values } = readerOf(['network_rx'], root);
    await values();
    write(devices({ eth0: 21_000, wwan0: 100, veth2: 7_000 }));
    expect(await values()).toEqual({ network_rx: 10_000 });
    write(devices({ eth0: 23_000, wwan0: 2_100, veth2: 7_000 }));
    expect(await values()).toEqual({ network_rx: 2_000 });
  });

  it('ignores thermal zones without a plausible temperature', async () => {
    const zones = { cpu: 45_500, nct6793: 3_892_314_000, acpitz: -274_000 };
    const files = Object.entries(zones).map(([type, milli], at) => ({
      [`sys/class/thermal/thermal_zone${at}/type`]: `${type}\n`,
      [`sys/class/thermal/thermal_zone${at}/temp`]: `${milli}\n`,
    }));
    const { root } = machine(Object.assign({}, ...files));
    const { values, warnings } = readerOf(['temperature', 'temperature:nct6793'], root);
    expect(await values()).toEqual({ temperature: 45.5 });
    expect(warnings).toMatchObject([{ event: 'host.unreadable', reading: 'temperature:nct6793' }]);
  });

  it('logs unreadable files once per repeat interval and reads the other files', async () => {
    const zone = 'sys/class/thermal/thermal_zone0';
    const { root, write } = machine({ [`${zone}/type`]: 'cpu\n', [`${zone}/temp`]: '45500\n' });
    const readings = ['temperature:0', 'temperature:1', 'network_rx', 'network_rx:eth7'];
    const { values, warnings } = readerOf(readings, root);
    for (let round = 0; round < 7; round++) expect(await values()).toEqual({ 'temperature:0': 45.5 });
    // The first failure is logged immediately; the others are combined.
    expect(warnings).toMatchObject([
      { event: 'host.unreadable' },
      { event: 'host.unreadable', objects: expect.any(Number) },
    ]);
    write({ [`${zone.replace('0', '1')}/type`]: 'disk\n', [`${zone.replace('0', '1')}/temp`]: '7000\n' });
    expect(await values()).toEqual({ 'temperature:0': 45.5, 'temperature:1': 7 });
    expect(warnings).toHaveLength(2);
  });

  it('parses reading names', () => {
    expect(parseHostReading('disk_free:/var:x')?.argument).toBe('/var:x');
    for (const wrong of ['load2', 'load1:5', 'disk_free:', '', 'LOAD1'])
      expect(parseHostReading(wrong)).toBeUndefined();
  });
});
