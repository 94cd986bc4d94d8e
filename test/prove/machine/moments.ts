import type { DiskImage, Fates, NbdDisk } from './nbd-disk.ts';

const CUT_WITHIN_MS = 60_000;

/** Moment of a cut. */
export interface Plug {
  before: 'a write' | 'a flush' | 'an acknowledgement';
  /** Ordinal number of the step. */
  count: number;
  /** Counts only the steps during this store activity (watch.mjs). */
  within?: RegExp;
  /** Time limit, in milliseconds. */
  withinMs?: number;
}

/** Circumstances of a cut. */
export interface Cut {
  before: Plug['before'] | 'a timeout';
  /** Activity reported by the store. */
  doing: string;
  fates: Fates;
}

export interface Glimpse extends Cut {
  images: DiskImage[];
}

/** Waits for a moment in the disks' work. The disks call it before each write and flush. */
export class Moments {
  /** Cuts the power: the disks must not perform any more steps. */
  isOver = false;
  readonly #disks: readonly NbdDisk[];
  readonly #doing: () => Promise<string>;
  #noteAnswer = () => {};

  /** `doing` returns the store's current activity. */
  constructor(disks: readonly NbdDisk[], doing: () => Promise<string>) {
    this.#disks = disks;
    this.#doing = doing;
  }

  /** Records an acknowledgement to a producer. */
  answered(): void {
    this.#noteAnswer();
  }

  forget(): void {
    this.#noteAnswer = () => {};
    for (const disk of this.#disks) disk.isOver = undefined;
  }

  /** Copies the disks as a cut at this moment would leave them, and continues. Calls `meanwhile` at that moment. */
  async glimpse(plug: Plug, meanwhile: () => void, chance?: () => number): Promise<Glimpse> {
    let images: DiskImage[] = [];
    const { before, doing } = await this.next(plug, () => {
      images = this.#disks.map((disk) => disk.imageOfCut(chance));
      meanwhile();
    });
    this.forget();
    return { before, doing: await doing, fates: summedFates(images.map(({ fates }) => fates)), images };
  }

  /** Calls `then` at that moment, before the disk performs the step. */
  async next(plug: Plug, then: () => void): Promise<{ before: Cut['before']; doing: Promise<string> | string }> {
    let left = plug.count;
    let patience: NodeJS.Timeout | undefined;
    return await new Promise((resolve) => {
      const now = (before: Cut['before'], doing: Promise<string> | string) => {
        if (left < 0) return;
        left = -1;
        clearTimeout(patience);
        then();
        resolve({ before, doing });
      };
      const isOver = async (step: 'a write' | 'a flush') => {
        if (left <= 0 || plug.before !== step) return this.isOver;
        // The activity cannot change while the disk waits for this step.
        const doing = plug.within !== undefined || left === 1 ? await this.#doing() : '';
        if (plug.within !== undefined && !plug.within.test(doing)) return this.isOver;
        if (--left === 0) now(step, doing);
        return this.isOver;
      };
      for (const disk of this.#disks) disk.isOver = (step) => isOver(step === 'write' ? 'a write' : 'a flush');
      this.#noteAnswer = () => {
        if (plug.before === 'an acknowledgement' && left > 0 && --left === 0) now(plug.before, this.#doing());
      };
      patience = setTimeout(() => now('a timeout', this.#doing()), plug.withinMs ?? CUT_WITHIN_MS);
    });
  }
}

export function summedFates(all: readonly Fates[]): Fates {
  const sum = (fate: keyof Fates) => all.reduce((so, fates) => so + fates[fate], 0);
  return { lost: sum('lost'), kept: sum('kept'), torn: sum('torn') };
}
