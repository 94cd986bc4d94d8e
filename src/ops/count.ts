/** Counter with labels, summed since startup. */
export class Count<Label extends string = string> {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly Label[];
  readonly #sums = new Map<string, { labels: Record<Label, string>; value: number }>();

  constructor(name: string, help: string, labelNames: readonly Label[] = []) {
    this.name = name;
    this.help = help;
    this.labelNames = labelNames;
  }

  inc(labels: Record<Label, string> & object, value = 1): void {
    const key = this.labelNames.map((name) => labels[name]).join('\n');
    const sum = this.#sums.get(key);
    if (sum) sum.value += value;
    else this.#sums.set(key, { labels, value });
  }

  get values(): { labels: Record<Label, string>; value: number }[] {
    return [...this.#sums.values()];
  }
}
