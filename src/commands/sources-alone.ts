import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { silentLogger } from '../base/logger.ts';
import { configurationDirectory, readSettingsLeniently, readTagsLeniently } from '../config/configuration.ts';
import type { Source } from '../config/tags.ts';
import type { TestedValue } from '../sources/arrivals.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import { type Point, pointsOf } from '../sources/points.ts';
import type { ScannedValue, ScanStep } from '../sources/source-kind.ts';
import { type TestedReport, testedReport } from '../sources/source-test.ts';
import { daemonPlace } from './control-client.ts';
import { namedSource } from './named-source.ts';
import type { SourceAddress } from './setup/source-address.ts';
import { giveToOwner } from './state-owner.ts';

/** Opens what tags.yaml reads from in this process, reads every value once, and closes it. */
export async function testAlone(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
  names: readonly string[],
  waitMs: number,
  startHint?: string,
): Promise<TestedReport[]> {
  const directory = configurationDirectory(config, environment);
  const tags = readTagsLeniently({ directory, environment, kinds: SOURCE_KINDS });
  for (const name of names) namedSource(tags.sources, name);
  let series = 0;
  const opener = { seriesOf: () => ++series };
  const reports: TestedReport[] = [];
  const here = { ...surroundings(config, environment), startHint };
  // One after the other: two of them may be on one serial line.
  for (const source of tags.sources.values()) {
    if (names.length > 0 && !names.includes(source.name)) continue;
    const kind = SOURCE_KINDS.find((one) => one.kind === source.kind)!;
    const tested = await testOne(source, pointsOf(tags.tags, source.name, opener), waitMs, here);
    reports.push(...tested.map((value) => testedReport(source, kind, value, systemClock)));
  }
  giveToOwner(here.stateDir);
  return reports;
}

/** What a source offers of what was named: opens it in this process. */
export async function* scanAlone(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
  name: string,
  what: readonly string[],
  waitMs: number,
): AsyncGenerator<ScanStep> {
  const directory = configurationDirectory(config, environment);
  const source = namedSource(readTagsLeniently({ directory, environment, kinds: SOURCE_KINDS }).sources, name);
  const kind = SOURCE_KINDS.find((one) => one.kind === source.kind)!;
  if (kind.scan === undefined) throw new UsageError(`a ${source.kind} source cannot be scanned`);
  const { signal } = new AbortController();
  const here = surroundings(config, environment);
  try {
    yield* kind.scan({ source, ...here, clock: systemClock, log: silentLogger(), waitMs, signal }, what);
  } finally {
    giveToOwner(here.stateDir);
  }
}

/** What the source at an address offers, before tags.yaml names it. */
export async function scanAddress(
  { name, members }: Pick<SourceAddress, 'name' | 'members'>,
  what: readonly string[],
  waitMs: number,
): Promise<ScannedValue[]> {
  // JSON is YAML.
  return withTags(JSON.stringify({ sources: { [name]: members } }), async (folder) => {
    const found: ScannedValue[] = [];
    for await (const step of scanAlone(folder, process.env, name, what, waitMs))
      if ('found' in step) found.push(step.found);
    return found;
  });
}

/** A configuration folder that contains only this tags.yaml, until `work` is done. */
export async function withTags<Result>(tags: string, work: (folder: string) => Promise<Result>): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-setup-'));
  try {
    writeFileSync(join(folder, 'tags.yaml'), tags);
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What the daemon would give a source beside its own lines. */
interface Surroundings {
  stateDir: string;
  platformCaFile: string | undefined;
  /** How to start the agent. */
  startHint?: string | undefined;
}

function surroundings(config: string | undefined, environment: NodeJS.ProcessEnv): Surroundings {
  const directory = configurationDirectory(config, environment);
  const { settings } = readSettingsLeniently({ directory, environment });
  return { stateDir: daemonPlace(config, environment).stateDir, platformCaFile: settings.platformCa };
}

async function testOne(
  source: Source,
  points: readonly Point[],
  waitMs: number,
  here: Surroundings,
): Promise<TestedValue[]> {
  const kind = SOURCE_KINDS.find((one) => one.kind === source.kind)!;
  if (points.length === 0) return [];
  if (kind.test === undefined) {
    const problem = 'no agent runs: only a running agent listens to this source';
    return points.map((point) => ({
      point,
      problem,
      ...(here.startHint === undefined ? {} : { hint: here.startHint }),
    }));
  }
  const { signal } = new AbortController();
  return await kind.test({ source, ...here, points, clock: systemClock, log: silentLogger(), waitMs, signal });
}
