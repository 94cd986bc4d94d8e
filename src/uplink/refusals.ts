/**
 * What becomes of values that the platform refuses: the parts of a divided batch, the lone values, the series that wait.
 *
 * A value goes to quarantine when it was refused alone twice and something was taken in between. That tells a poisoned
 * value from a platform (or a proxy) that refuses everything for a while, which is an outage: then nothing goes to
 * quarantine and everything goes back to its place. A gateway whose only asset is in question has nobody else to ask:
 * there it is enough that another part of the same batch was taken before, and where none was, more of the series is
 * tried before it counts as an outage. A crash in between leaves the values in the buffer: they are refused again.
 */
import type { Batch, OutgoingBuffer, Refusal } from '../buffer/lanes.ts';
import type { Clock } from '../clock.ts';
import type { Logger } from '../logger.ts';
import { Repeats } from '../repeats.ts';
import type { Course } from './course.ts';
import type { UplinkHooks } from './ports.ts';
import type { PostSize } from './post-size.ts';
import type { Reach } from './reach.ts';
import { MOST_LONE_REFUSALS, type SeriesWaits } from './series-waits.ts';
import type { Verdict } from './verdict.ts';

const QUARANTINE_HINT =
  'See `tagferry buffer quarantine`; mend unit, key or asset in tags.yaml, then `tagferry buffer requeue`.';
/** So many lone values an asset without company is tried with before its refusals count as an outage. */
const MOST_LONE_TRIES = 32;

export interface RefusalsParts {
  buffer: OutgoingBuffer;
  clock: Clock;
  log: Logger;
  reach: Reach;
  waits: SeriesWaits;
  size: PostSize;
  hooks: UplinkHooks;
  /** Calls the buffer until it answers. */
  keep<Answer>(call: () => Promise<Answer>): Promise<Answer>;
  /** Tells the buffer which series are held now. */
  holdSeries(): Promise<void>;
  /** Everything is refused. */
  outage(course: Course, failure: { code: string; words: string }): void;
  /** A try during an outage was refused, but not as everything was: the platform is there. */
  answered(course: Course): void;
}

export class Refusals {
  readonly #parts: RefusalsParts;
  readonly #repeats = new Repeats();
  quarantinedValues = 0;

  constructor(parts: RefusalsParts) {
    this.#parts = parts;
  }

  /** The part that was posting was answered 400, 413 or 422. */
  async refused(course: Course, batch: Batch, verdict: Verdict): Promise<void> {
    const { buffer, clock, log, reach, waits, size } = this.#parts;
    reach.met('refused', course.asset);
    this.#logRefused(course, batch, verdict);
    if (course.abandoned) return course.putBack([batch]);
    if (batch.values > 1) {
      if (verdict.status === 413) {
        const maxBytes = size.refused(batch.body.length, clock.monotonicMs());
        if (maxBytes !== undefined) this.#logSize(course, maxBytes);
      }
      const parts = await this.#parts.keep(() => buffer.divide(batch.id));
      if (parts.length > 0) {
        course.wasDivided = true;
        const facts = { batch: course.name, asset: course.asset, part: batch.id, into: parts.map(({ id }) => id) };
        log.debug({ event: 'uplink.divided', ...facts }, 'a refused part was divided');
        return course.putBack(parts);
      }
    }
    const series = batch.series[0]!;
    const refusal = { status: verdict.status, message: verdict.words };
    course.posting = undefined;
    if (course.again.has(batch.id)) return this.#quarantine(course, batch, refusal);
    course.loneRefusals++;
    course.deferred.push({ batch, series, refusal, at: reach.number() });
    if (waits.refusedAlone(series) >= MOST_LONE_REFUSALS) course.shelve(series);
  }

  /** A part was taken: where it filled the limit that 413s taught, posts may become larger again. */
  taken(batch: Batch): void {
    const { clock, log, size } = this.#parts;
    const maxBytes = size.taken(batch.body.length, clock.monotonicMs());
    if (maxBytes !== undefined) log.debug({ event: 'uplink.size_grown', maxBytes }, 'posts become larger again');
  }

  #logSize(course: Course, maxBytes: number): void {
    const { clock, log } = this.#parts;
    const count = this.#repeats.note('size', clock.monotonicMs());
    const fields = { event: 'uplink.size_learned', batch: course.name, maxBytes, count };
    log[count === undefined ? 'debug' : 'warn'](fields, 'a post was too large: posts become smaller');
  }

  #logRefused(course: Course, batch: Batch, verdict: Verdict): void {
    const { clock, log } = this.#parts;
    // The parts of a batch are the same happening, which what goes to quarantine ends.
    const isFirst = !course.wasDivided;
    const count = isFirst ? this.#repeats.note(`refused:${course.asset}`, clock.monotonicMs()) : undefined;
    const { status, words } = verdict;
    const facts = {
      batch: course.name,
      asset: course.asset,
      part: batch.id,
      status,
      words,
      values: batch.values,
      count,
    };
    const level = count === undefined ? 'debug' : 'warn';
    log[level]({ event: 'uplink.refused', ...facts }, 'the platform refused a post: it is divided');
  }

  /**
   * Says what the course does next: `over`, `ready` (a part waits for its turn) or `parked` (it is not known yet whether
   * the platform takes anything).
   */
  decide(course: Course): 'over' | 'ready' | 'parked' {
    const { reach, clock } = this.#parts;
    course.tryAgain(course.deferred.filter((one) => reach.hasTakenSince(one.at)));
    this.#unshelveHopeful(course);
    if (course.waiting.length > 0) return 'ready';
    if (course.isOver) return 'over';
    if (course.deferred.length === 0) {
      course.unshelve();
      return 'ready';
    }
    const nowMs = clock.monotonicMs();
    if (reach.isAlone(course.asset, nowMs)) {
      if (course.taken > 0) {
        course.tryAgain(course.deferred);
        return 'ready';
      }
      if (course.shelved.length > 0 && course.loneRefusals < MOST_LONE_TRIES) {
        course.unshelve();
        return 'ready';
      }
      this.#outage(course);
    } else if (reach.isPlatform('refused', nowMs)) this.#outage(course);
    else if (course.trial) this.#parts.answered(course);
    return 'parked';
  }

  #outage(course: Course): void {
    const { refusal } = course.deferred[0]!;
    this.#parts.outage(course, { code: String(refusal.status), words: refusal.message });
  }

  async #quarantine(course: Course, batch: Batch, refusal: Refusal): Promise<void> {
    const { buffer, hooks } = this.#parts;
    const series = batch.series[0]!;
    await this.#parts.keep(() => buffer.quarantine(batch.id, refusal));
    this.quarantinedValues += batch.values;
    hooks.quarantined?.(String(refusal.status), batch.values);
    this.#logQuarantined(course, batch.id, series, refusal);
    await this.#letWait(course, series, refusal);
  }

  #logQuarantined({ name, asset }: Course, part: number, series: number, refusal: Refusal): void {
    const { clock, log } = this.#parts;
    const count = this.#repeats.note(`quarantined:${series}`, clock.monotonicMs());
    const { status, message: words } = refusal;
    const facts = { batch: name, asset, part, series, status, words, count, hint: QUARANTINE_HINT };
    log[count === undefined ? 'debug' : 'warn'](
      { event: 'uplink.quarantined', ...facts },
      'a value that the platform refuses is in quarantine',
    );
  }

  /** Enough of its values were refused alone: the series waits, and its parts go back to their places. */
  async #letWait(course: Course, series: number, refusal: Refusal): Promise<void> {
    const { waits, clock, log, buffer } = this.#parts;
    if (waits.refusals(series) < MOST_LONE_REFUSALS) return;
    if (course.hasUndecided(series)) return;
    const isNew = waits.hold(course.asset, series, refusal, clock.monotonicMs());
    await this.#parts.holdSeries();
    for (const part of course.takeOut(series)) await this.#parts.keep(() => buffer.release(part.id));
    if (!isNew) return;
    const { status, message: words } = refusal;
    const facts = { batch: course.name, asset: course.asset, series, status, words, hint: QUARANTINE_HINT };
    log.error(
      { event: 'uplink.series_waits', ...facts },
      'the platform refuses one value of a series after the other: it waits',
    );
  }

  /** Something of a shelved series was taken meanwhile: it is worth dividing on. */
  #unshelveHopeful(course: Course): void {
    const { waits } = this.#parts;
    if (course.shelved.length === 0) return;
    const isHopeless = (part: Batch) => waits.refusals(part.series[0]!) >= MOST_LONE_REFUSALS;
    if (!course.shelved.every(isHopeless)) {
      const hopeless = course.shelved.filter(isHopeless);
      course.shelved = course.shelved.filter((part) => !isHopeless(part));
      course.unshelve();
      course.shelved = hopeless;
    }
  }
}
