/** What every fault has beside what it matches and does. */
export interface CountedFault {
  id: number;
  /** Only the n-th that matches, counted from 1 from now on. */
  nth?: number;
  /** Each n-th that matches. */
  every?: number;
  /** Falls away after it happened so often. */
  times?: number;
  /** How often it was looked at, and how often it happened. */
  matched: number;
  happened: number;
}

/** Faults that somebody ordered, each with a number of its own and what has become of it. */
export class FaultList<Fault extends CountedFault> {
  #faults: Fault[] = [];
  #nextId = 1;

  add(fault: Omit<Fault, 'id' | 'matched' | 'happened'>): number {
    const id = this.#nextId++;
    this.#faults.push({ ...fault, id, matched: 0, happened: 0 } as Fault);
    return id;
  }

  remove(id: number): boolean {
    const before = this.#faults.length;
    this.#faults = this.#faults.filter((fault) => fault.id !== id);
    return this.#faults.length < before;
  }

  clear(): void {
    this.#faults = [];
  }

  list(): readonly Fault[] {
    return this.#faults;
  }

  /** Counts one that matches; gives whether the fault happens to it, and takes away one that has happened often enough. */
  protected happens(fault: Fault): boolean {
    fault.matched++;
    if (fault.nth !== undefined && fault.matched !== fault.nth) return false;
    if (fault.every !== undefined && fault.matched % fault.every !== 0) return false;
    fault.happened++;
    if (fault.times !== undefined && fault.happened >= fault.times) this.remove(fault.id);
    return true;
  }
}
