/** How a threshold moves by hand. Pure. */

/** What one key press is: a hundredth of what the chart shows, rounded to 1, 2 or 5 of a power of ten. */
export function stepOf([low, high]: readonly [number, number]): number {
  const rough = (high - low) / 100;
  const power = 10 ** Math.floor(Math.log10(rough));
  return (([1, 2, 5].find((each) => each * power >= rough) ?? 10) as number) * power;
}

/** On a whole number of steps, without the digits that floating point leaves behind. */
export function onStep(value: number, step: number): number {
  return Number((Math.round(value / step) * step).toPrecision(12));
}

/** Where a key takes it; `undefined`: the key is none of a slider's. */
export function movedBy(
  key: string,
  value: number,
  step: number,
  [low, high]: readonly [number, number],
): number | undefined {
  const steps: Readonly<Record<string, number>> = {
    ...{ ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 10, PageDown: -10 },
  };
  if (Object.hasOwn(steps, key)) return onStep(value + steps[key]! * step, step);
  if (key === 'Home') return onStep(low, step);
  if (key === 'End') return onStep(high, step);
  return undefined;
}
