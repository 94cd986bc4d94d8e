import type { DiskImage, Fates, NbdDisk } from './nbd-disk.ts';

const CUT_WITHIN_MS = 60_000;

/** The moment of a cut. */
export interface Plug {
  before: 'a write' | 'a flush' | 'an acknowledgement';
  /** The how-manieth of them. */
  count: number;
  /** Of these alone while the machine says that it is at such work (watch.mjs). */
  within?: RegExp;
  /** So long it is waited for. */
  withinMs?: number;
}

/** How it went. */
export interface Cut {
  before: Plug['before'] | 'the end of patience';
  /** What the store was at, in its own words. */
  doing: string;
  fates: Fates;
}

export interface Glimpse extends Cut {
  images: DiskImage[];
}

/** Waits for moments of disks, which ask it before each write and each flush. */
export class Moments {
  /** The power goes: whatever they ask for, they are answered so. */
  isOver = false;
  readonly #disks: readonly NbdDisk[];
  readonly #doing: () => Promise<string>;
  #noteAnswer = () => {};

  /** `doing` asks the store what it is at. */
  constructor(disks: readonly NbdDisk[], doing: () => Promise<string>) {
    this.#disks = disks;
    this.#doing = doing;
  }

  /** Something was acknowledged to whoever sent it. */
  answered(): void {
    this.#noteAnswer();
  }

  forget(): void {
    this.#noteAnswer = () => {};
    for (const disk of this.#disks) disk.isOver = undefined;
  }

  /** What the disks would have if the plug were pulled at that moment; they go on. `meanwhile` is called at it, too. */
  async glimpse(plug: Plug, meanwhile: () => void, chance?: () => number): Promise<Glimpse> {
    let images: DiskImage[] = [];
    const { before, doing } = await this.next(plug, () => {
      images = this.#disks.map((disk) => disk.imageOfCut(chance));
      meanwhile();
    });
    this.forget();
    return { before, doing: await doing, fates: summedFates(images.map(({ fates }) => fates)), images };
  }

  /** Calls `then` at that moment, before the disk does what it was asked for. */
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
        // What waits for this step is still at it when the answer comes.
        const doing = plug.within !== undefined || left === 1 ? await this.#doing() : '';
        if (plug.within !== undefined && !plug.within.test(doing)) return this.isOver;
        if (--left === 0) now(step, doing);
        return this.isOver;
      };
      for (const disk of this.#disks) disk.isOver = (step) => isOver(step === 'write' ? 'a write' : 'a flush');
      this.#noteAnswer = () => {
        if (plug.before === 'an acknowledgement' && left > 0 && --left === 0) now(plug.before, this.#doing());
      };
      patience = setTimeout(() => now('the end of patience', this.#doing()), plug.withinMs ?? CUT_WITHIN_MS);
    });
  }
}

export function summedFates(all: readonly Fates[]): Fates {
  const sum = (fate: keyof Fates) => all.reduce((so, fates) => so + fates[fate], 0);
  return { lost: sum('lost'), kept: sum('kept'), torn: sum('torn') };
}
