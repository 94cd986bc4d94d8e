import { defaultSeed, SANDBOX_CREDENTIALS, type SandboxSeed } from '../../sandbox/sandbox.ts';

/** A demo tag, which pushes one series. */
export interface DemoTag {
  name: string;
  asset: number;
  instrumentation: number;
  key: string;
  /** Unit code on the platform. */
  unit: string;
  low: number;
  high: number;
}

/** Measured quantities by tag prefix. */
const MEASURES: Record<string, Pick<DemoTag, 'key' | 'unit' | 'low' | 'high'>> = {
  FT: { key: 'flow', unit: 'cubic_meter_per_hour', low: 20, high: 60 },
  FIC: { key: 'flow', unit: 'cubic_meter_per_hour', low: 5, high: 15 },
  PT: { key: 'pressure', unit: 'bar', low: 2, high: 6 },
  PDT: { key: 'pressure_difference', unit: 'bar', low: 0.1, high: 0.5 },
  TT: { key: 'temperature', unit: 'degree_celsius', low: 40, high: 80 },
  LT: { key: 'level', unit: 'meter', low: 0.5, high: 3 },
  AT: { key: 'ph', unit: 'ph', low: 6.5, high: 7.5 },
  QT: { key: 'saturation', unit: 'percent', low: 80, high: 100 },
};

/** Tags in addition to the sandbox's 13 instrumentations. */
const MORE: readonly [asset: number, instrumentation: number, tag: string][] = [
  [894, 4724, 'FT-103'],
  [895, 4725, 'PT-103'],
  [896, 4726, 'TT-103'],
  [897, 4727, 'LT-103'],
  [898, 4728, 'AT-103'],
  [899, 4729, 'QT-102'],
  [902, 4730, 'FT-104'],
];

const GATEWAY = 'GW-01';
export const GATEWAY_ASSET = 900;

/** Sandbox seed with an asset and an instrumentation for each tag. */
export const demoSeed: SandboxSeed = {
  ...defaultSeed,
  assets: [...(defaultSeed.assets ?? []), ...MORE.map(([id, , tag]) => ({ id, serial_number: tag, tenant: 50 }))],
  instrumentations: [
    ...(defaultSeed.instrumentations ?? []),
    ...MORE.map(([asset, id, tag]) => ({ id, tag, assets: [asset] })),
  ],
  permissions: [
    ...(defaultSeed.permissions ?? []),
    {
      user: SANDBOX_CREDENTIALS.technicalUsername,
      on: { Asset: MORE.map(([asset]) => asset), Instrumentation: MORE.map(([, instrumentation]) => instrumentation) },
      types: ['can_read', 'can_update', 'can_delete', 'can_permit'],
    },
  ],
};

/** The 20 tags, starting with FT-101. */
export const DEMO_TAGS: readonly DemoTag[] = (demoSeed.instrumentations ?? [])
  .filter(({ tag }) => tag !== GATEWAY)
  .map(({ id, tag, assets }) => ({
    name: tag,
    asset: assets?.[0] ?? 0,
    instrumentation: id,
    ...MEASURES[tag.slice(0, tag.indexOf('-'))]!,
  }));

/** Threshold of FT-101, in m³/h. */
export const FLOW_LIMIT = 80;

/** Limit of LT-101 in the gateway's rule, in m. */
export const LEVEL_LIMIT = 4;
const LEVEL_TAG = DEMO_TAGS.findIndex(({ name }) => name === 'LT-101');

const FULL_TURN_MS = 40_000;
const SURGE_PER_MS = 0.04;
const FALL_MS = 700;

/** Simulates slow sine waves, a flow that surges until its valve is closed, and a tank that overflows until it is drained. */
export class SimulatedPlant {
  #surgedAtMs: number | undefined;
  #isOverfilled = false;
  #closed: { atMs: number; flow: number } | undefined;

  /** Starts to increase the flow of FT-101. */
  surge(nowMs: number): void {
    this.#surgedAtMs = nowMs;
  }

  closeValve(nowMs: number): void {
    this.#closed ??= { atMs: nowMs, flow: this.read(0, nowMs) };
  }

  /** Raises the level of LT-101 above its limit until the tank is drained. */
  overfill(): void {
    this.#isOverfilled = true;
  }

  drain(): void {
    this.#isOverfilled = false;
  }

  /** Returns the reading of a tag by index, rounded to thousandths. */
  read(index: number, nowMs: number): number {
    const { low, high } = DEMO_TAGS[index]!;
    let value = low + (high - low) * (0.5 + 0.5 * Math.sin((2 * Math.PI * nowMs) / FULL_TURN_MS + index));
    if (index === LEVEL_TAG && this.#isOverfilled) value += LEVEL_LIMIT;
    if (index === 0) {
      if (this.#closed) value = this.#closed.flow * Math.exp(-(nowMs - this.#closed.atMs) / FALL_MS);
      else if (this.#surgedAtMs !== undefined) value += (nowMs - this.#surgedAtMs) * SURGE_PER_MS;
    }
    return Math.round(value * 1000) / 1000;
  }
}
