import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SourcesFlow, type SourcesFlowOptions } from '../../../src/agent/sources-flow.ts';
import { systemClock as clock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import { type Configuration, loadConfiguration } from '../../../src/config/configuration.ts';
import { SIMULATE } from '../../../src/sources/simulate/simulate-kind.ts';
import type { RunningSource, SourceKind } from '../../../src/sources/source-kind.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { makeIntakeBench, until } from '../../unit/sources/sink-double.ts';

/** Source kind whose `open` can be delayed or fail, and that counts running sources. */
class Probe {
  running = 0;
  opening = 0;
  fault: Error | undefined;
  hold: Promise<void> | undefined;
  readonly kind: SourceKind = {
    ...(SIMULATE as SourceKind),
    open: async (): Promise<RunningSource> => {
      this.opening++;
      await this.hold;
      if (this.fault) throw this.fault;
      let isRunning = false;
      return {
        start: () => {
          isRunning = true;
          this.running++;
        },
        stop: async () => {
          if (isRunning) this.running--;
          isRunning = false;
        },
      };
    },
  };
}

let probe: Probe;
let files: AgentProcess;
let flow: SourcesFlow;
let configuration: Configuration;

function configured(high: number): Configuration {
  const tags = `sources: { play: { simulate: true } }\ntags: { T-1: { asset: 881, values: { a: { from: play, high: ${high} } } } }\n`;
  files.write('https://platform.example', { tags });
  return loadConfiguration({ directory: files.config, environment: {}, kinds: [probe.kind], actions: [] });
}

beforeEach(async () => {
  probe = new Probe();
  files = new AgentProcess('https://platform.example');
  const { catalogue, stamps, sink } = makeIntakeBench();
  configuration = configured(1);
  const buffer = { catalogue, stamps, committer: sink, values: { notes: async () => [] } };
  flow = new SourcesFlow({
    settings: { ...configuration.settings, ingestListen: undefined },
    listener: undefined,
    tags: configuration.tags,
    kinds: [probe.kind],
    buffer: buffer as unknown as SourcesFlowOptions['buffer'],
    countIngested: () => {},
    platformMs: () => undefined,
    brokers: new Brokers({ clientId: (name) => name, clock, logger: silentLogger() }),
    clock,
    log: silentLogger(),
  });
  await flow.start();
});
afterEach(async () => {
  await flow.stop();
  await files.dispose();
});

async function reload(high: number): Promise<void> {
  const { tags } = configured(high);
  await flow.reload(tags, { ...configuration.settings, ingestListen: undefined });
}

describe('sources in tags.yaml', () => {
  it.each(['pause', 'stop'] as const)('remain stopped after a %s during a reload', async (verb) => {
    const release = Promise.withResolvers<void>();
    probe.hold = release.promise;
    const opened = probe.opening;
    const reloading = reload(2);
    await until(() => probe.opening > opened);
    const ending = flow[verb]();
    release.resolve();
    await Promise.all([reloading, ending]);
    expect(probe.running).toBe(0);
    expect(flow.tagSources.reports()).toEqual([]);
  });

  it('use the latest configuration after a reload during a pause', async () => {
    const pausing = flow.pause();
    await Promise.all([pausing, reload(2)]);
    expect(probe.running).toBe(0);
    await flow.resume();
    expect(probe.running).toBe(1);
    const opened = probe.opening;
    await reload(2);
    expect(probe.opening).toBe(opened);
  });

  it('are reported as disconnected if they cannot be reopened, and open on the next reload', async () => {
    probe.fault = Object.assign(new Error('too many open files'), { code: 'EMFILE' });
    await reload(2);
    expect(probe.running).toBe(0);
    expect(flow.tagSources.reports()).toMatchObject([{ name: 'play', connected: false, problem: 'EMFILE', values: 1 }]);
    probe.fault = undefined;
    await reload(1);
    expect(probe.running).toBe(1);
    expect(flow.tagSources.reports()).toMatchObject([{ name: 'play', connected: null, problem: null }]);
  });
});
