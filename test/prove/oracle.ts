import type { ValueStatus } from '../../src/contract/values.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';

/** Value offered by a producer, identified by series and timestamp for every input. */
export interface Claim {
  way: string;
  asset: number;
  key: string;
  timestampMs: number;
  value: number;
  status?: ValueStatus | undefined;
}

/** Counts per input. `missing`, `invented` and `different` must be 0. */
export interface Verdict {
  offered: number;
  acknowledged: number;
  delivered: number;
  /** Acknowledged but not on the platform. */
  missing: number;
  /** On the platform but never offered, or stored under two timestamps. */
  invented: number;
  /** On the platform with a different value, compared bit by bit, or a different status. */
  different: number;
  /** Delivered again unchanged, which is allowed up to a limit. */
  repeated: number;
}

interface Known extends Claim {
  acknowledged: boolean;
}

/** Device that returns the next number in each response. `owed` contains the acknowledged numbers, or only their count. */
interface Counter {
  way: string;
  answered: Set<number>;
  owed: number | ReadonlySet<number>;
  /** Timestamp of each number on the platform. */
  seen: Map<number, number>;
}

type SeriesName = `${number}/${string}`;

/**
 * Compares all inputs' values with those on the platform. A producer claims values before it sends them. An
 * acknowledged claim must be on the platform unchanged; any other claim may be.
 *
 * `judge` starts a new round, so that memory stays bounded during long runs. The claims of the previous round are
 * remembered, because a crash may repeat them.
 */
export class Oracle {
  #claims = new Map<SeriesName, Map<number, Known>>();
  #counters = new Map<SeriesName, Counter>();
  #before = new Map<SeriesName, Set<number>>();

  offer(claim: Claim): void {
    const series = entryOf(this.#claims, nameOf(claim), () => new Map<number, Known>());
    const known = series.get(claim.timestampMs);
    if (known === undefined) series.set(claim.timestampMs, { ...claim, acknowledged: false });
    else if (!isSame(known, claim)) throw new Error(`${nameOf(claim)} claims two values at ${claim.timestampMs}`);
  }

  acknowledge(claim: Claim): void {
    const known = this.#claims.get(nameOf(claim))?.get(claim.timestampMs);
    if (known === undefined) throw new Error(`${nameOf(claim)} at ${claim.timestampMs} was never offered`);
    known.acknowledged = true;
  }

  /** Returns acknowledged claims that are not on the platform yet. */
  owed(sandbox: Sandbox): Claim[] {
    return [...this.#claims].flatMap(([name, claims]) => {
      const far = new Set(listOf(sandbox, name).map(({ timestampMs }) => timestampMs));
      return [...claims.values()].filter(({ acknowledged, timestampMs }) => acknowledged && !far.has(timestampMs));
    });
  }

  /** Compares claims with another platform without starting a new round. */
  compare(claims: readonly Claim[], sandbox: Sandbox): Pick<Verdict, 'missing' | 'invented' | 'different'> {
    const found = { missing: 0, invented: 0, different: 0 };
    const far = new Map<string, Pick<Claim, 'value' | 'status'>>();
    for (const { asset, key } of sandbox.values.series()) {
      const claimed = this.#claims.get(`${asset}/${key}`);
      for (const value of listOf(sandbox, `${asset}/${key}`)) {
        far.set(`${asset}/${key}/${value.timestampMs}`, value);
        const claim = claimed?.get(value.timestampMs);
        if (claim === undefined) found.invented++;
        else if (!isSame(claim, value)) found.different++;
      }
    }
    for (const claim of claims) if (!far.has(`${nameOf(claim)}/${claim.timestampMs}`)) found.missing++;
    return found;
  }

  /** Records the acknowledged numbers of a counter, or only their count, and all numbers that it returned. */
  counted(
    way: string,
    asset: number,
    key: string,
    owed: number | ReadonlySet<number>,
    answered: Iterable<number>,
  ): void {
    const seen = this.#counters.get(`${asset}/${key}`)?.seen ?? new Map<number, number>();
    this.#counters.set(`${asset}/${key}`, { way, owed, answered: new Set(answered), seen });
  }

  /** Compares all claims with the platform, returns the counts per input, and starts a new round. */
  judge(sandbox: Sandbox): Map<string, Verdict> {
    const verdicts = new Map<string, Verdict>();
    const of = (way: string) => entryOf(verdicts, way, noVerdict);
    const here = new Set(sandbox.values.series().map(({ asset, key }): SeriesName => `${asset}/${key}`));
    const before = this.#before;
    this.#before = new Map();
    for (const name of new Set([...here, ...this.#claims.keys()])) {
      if (this.#counters.has(name)) continue;
      this.#judgeSeries(name, sandbox, before.get(name), of);
    }
    for (const [name, counter] of this.#counters) judgeCounter(name, counter, sandbox, of(counter.way));
    this.#claims = new Map();
    sandbox.values.clear();
    return verdicts;
  }

  #judgeSeries(
    name: SeriesName,
    sandbox: Sandbox,
    before: Set<number> | undefined,
    of: (way: string) => Verdict,
  ): void {
    const claims = this.#claims.get(name) ?? new Map<number, Known>();
    const far = new Map(listOf(sandbox, name).map((value) => [value.timestampMs, value]));
    for (const claim of claims.values()) {
      const verdict = of(claim.way);
      const found = far.get(claim.timestampMs);
      verdict.offered++;
      if (claim.acknowledged) verdict.acknowledged++;
      if (found === undefined) {
        if (claim.acknowledged) verdict.missing++;
        continue;
      }
      verdict.delivered++;
      verdict.repeated += found.times - 1;
      if (!isSame(claim, found)) verdict.different++;
    }
    for (const [timestampMs, { times }] of far) {
      if (claims.has(timestampMs)) continue;
      if (before?.has(timestampMs)) of('earlier').repeated += times;
      else of('unknown').invented++;
    }
    this.#before.set(name, new Set(claims.keys()));
  }
}

/** Counters are not reset between rounds. */
function judgeCounter(name: SeriesName, counter: Counter, sandbox: Sandbox, verdict: Verdict): void {
  for (const { value, timestampMs, times } of listOf(sandbox, name)) {
    const known = counter.seen.get(value);
    if (!counter.answered.has(value) || (known !== undefined && known !== timestampMs)) verdict.invented++;
    else verdict.repeated += known === timestampMs ? times : times - 1;
    counter.seen.set(value, timestampMs);
  }
  const { owed, answered, seen } = counter;
  verdict.offered += answered.size;
  verdict.acknowledged += typeof owed === 'number' ? owed : owed.size;
  verdict.delivered += seen.size;
  verdict.missing +=
    typeof owed === 'number' ? Math.max(0, owed - seen.size) : [...owed].filter((one) => !seen.has(one)).length;
}

function isSame(one: Pick<Claim, 'value' | 'status'>, other: Pick<Claim, 'value' | 'status'>): boolean {
  return Object.is(one.value, other.value) && one.status === other.status;
}

function nameOf({ asset, key }: Claim): SeriesName {
  return `${asset}/${key.toLowerCase()}`;
}

function listOf(sandbox: Sandbox, name: SeriesName) {
  const [asset, key] = name.split('/') as [string, string];
  return sandbox.values.list(Number(asset), key);
}

function noVerdict(): Verdict {
  return { offered: 0, acknowledged: 0, delivered: 0, missing: 0, invented: 0, different: 0, repeated: 0 };
}

function entryOf<Key, Value>(map: Map<Key, Value>, key: Key, make: () => Value): Value {
  const found = map.get(key);
  if (found !== undefined) return found;
  const made = make();
  map.set(key, made);
  return made;
}

/** Returns the sum over all inputs. */
export function summed(verdicts: Iterable<Verdict>): Verdict {
  const sum = noVerdict();
  for (const verdict of verdicts) {
    for (const [name, count] of Object.entries(verdict)) sum[name as keyof Verdict] += count;
  }
  return sum;
}
