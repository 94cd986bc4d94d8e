import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { silentLogger } from '../../base/logger.ts';
import { type AnyBrokerSpec, Brokers } from '../../broker/brokers.ts';
import { configurationDirectory, readSettingsLeniently, readTagsLeniently } from '../../config/configuration.ts';
import type { Source, Tags } from '../../config/tags.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { pointsOf } from '../../sources/points.ts';
import {
  type InspectionContext,
  type ScannedValue,
  type ScanStep,
  Shared,
  type SourceKind,
} from '../../sources/source-kind.ts';
import { type TestedReport, testedReport, testSource } from '../../sources/source-test.ts';
import { agentAddress } from '../connection/control-client.ts';
import { giveToOwner } from '../service/service-folder.ts';

/** A source from tags.yaml, with everything that a command requires to use the source without the agent. */
export interface DirectSource {
  kind: SourceKind;
  context: InspectionContext;
}

function readTags(config: string | undefined, environment: NodeJS.ProcessEnv): Tags {
  const directory = configurationDirectory(config, environment);
  return readTagsLeniently({ directory, environment, kinds: SOURCE_KINDS });
}

async function contextOf(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
  source: Source,
): Promise<InspectionContext> {
  const directory = configurationDirectory(config, environment);
  const { settings } = readSettingsLeniently({ directory, environment });
  const { signal } = new AbortController();
  const { stateDir } = agentAddress(config, environment);
  const clock = systemClock;
  const shared = { clock, logger: silentLogger(), platformCaFile: settings.platformCa };
  const brokers = new Brokers({ ...shared, clientId: () => '' });
  if (kindOf(source).publishes) await brokers.set([source as Source<AnyBrokerSpec>]);
  return { source, stateDir, brokers: await brokers.inspection(source.name), clock, signal };
}

/** Throws `UsageError` if the source is missing or invalid. */
export async function directSource(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
  name: string,
): Promise<DirectSource> {
  const source = namedSource(readTags(config, environment).sources, name);
  return { kind: kindOf(source), context: await contextOf(config, environment, source) };
}

function namedSource(sources: Tags['sources'], name: string): Source {
  const source = sources.get(name);
  if (source) return source;
  // `sources` does not contain invalid sources.
  throw new UsageError(`tags.yaml has no valid source "${name}"`, 'Run `tagferry check` to see errors in tags.yaml.');
}

function kindOf(source: Source): SourceKind {
  return SOURCE_KINDS.find(({ kind }) => kind === source.kind)!;
}

/** Reads every value of the sources once, using connections opened by this process. */
export async function testAlone(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
  names: readonly string[],
  waitMs: number,
  startHint?: string,
): Promise<TestedReport[]> {
  const tags = readTags(config, environment);
  const wanted = new Set(names.length > 0 ? names : tags.sources.keys());
  const sources = [...wanted].map((name) => namedSource(tags.sources, name));
  const { stateDir } = agentAddress(config, environment);
  let series = 0;
  const reports: TestedReport[] = [];
  // One source at a time, because two sources can share a serial line.
  for (const source of sources) {
    const points = pointsOf(tags.tags, source.name, { seriesOf: () => ++series });
    const kind = kindOf(source);
    if (kind.isTestedWhileRunning) {
      const problem = 'this source requires a running agent, because the agent runs its program';
      reports.push(
        ...points.map((point) => testedReport(source, kind, { point, problem, hint: startHint }, systemClock)),
      );
      continue;
    }
    const { signal, ...context } = await contextOf(config, environment, source);
    const instance = `tagferry-test-${process.pid}`;
    const parts = { ...context, points, instance, intake: NO_DRAFTS, shared: new Shared() };
    if (points.length > 0) reports.push(...(await testSource(kind, parts, waitMs, signal)));
  }
  giveToOwner(stateDir);
  return reports;
}

/** Only programs that an agent runs use drafts. */
const NO_DRAFTS = {
  draft(): never {
    throw new UsageError('values of this source are read only by a running agent');
  },
};

/** Scans a source, using a connection opened by this process. */
export async function* scanAlone(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
  name: string,
  what: readonly string[],
  waitMs: number,
): AsyncGenerator<ScanStep> {
  const { kind, context } = await directSource(config, environment, name);
  if (kind.scan === undefined) throw new UsageError(`sources of the kind ${kind.kind} cannot be scanned`);
  try {
    yield* kind.scan(context, what, waitMs);
  } finally {
    giveToOwner(context.stateDir);
  }
}

/** Scans the source at an address that tags.yaml does not contain yet. */
export async function scanAddress(
  { name, members }: Pick<SourceAddress, 'name' | 'members'>,
  what: readonly string[],
  waitMs: number,
): Promise<ScannedValue[]> {
  // JSON is valid YAML.
  return withTags(JSON.stringify({ sources: { [name]: members } }), async (folder) => {
    const found: ScannedValue[] = [];
    for await (const step of scanAlone(folder, process.env, name, what, waitMs))
      if ('found' in step) found.push(step.found);
    return found;
  });
}

/** Runs `work` with a temporary configuration folder that contains only this tags.yaml. */
export async function withTags<Result>(tags: string, work: (folder: string) => Promise<Result>): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-setup-'));
  try {
    writeFileSync(join(folder, 'tags.yaml'), tags);
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A source identified by its address on the command line or in `setup`. */
export interface SourceAddress {
  kind: 'modbus' | 'mqtt';
  /** Name of the source in tags.yaml. */
  name: string;
  members: Record<string, unknown>;
  /** Example of a value address within the source. */
  example: string;
}

/** Parses an address. `tcp://host:port` and `rtu:/dev/…` are Modbus devices; `mqtt://` and `mqtts://` are brokers. */
export function readSourceAddress(text: string): SourceAddress | { reason: string; instead: string } {
  const address = text.replace(/^modbus:\/\//, 'tcp://');
  if (/^tcp:\/\/[^\s/]+$/.test(address) || /^rtu:\/\S+$/.test(address)) {
    return { kind: 'modbus', name: 'plc1', members: { modbus: address, unit: 1, every: '1s' }, example: 'holding 0' };
  }
  if (/^(mqtts?|wss?):\/\/[^\s@]+$/.test(address)) {
    return { kind: 'mqtt', name: 'broker', members: { mqtt: address }, example: 'site/ft101' };
  }
  if (/^mqtts?:\/\/\S+@/.test(address)) {
    return { reason: 'contains a password', instead: 'remove it, and add username and password_file in tags.yaml' };
  }
  return {
    reason: `"${text}" is not a valid source address`,
    instead: 'use tcp://host:502, rtu:/dev/ttyUSB0 or mqtt://host',
  };
}
