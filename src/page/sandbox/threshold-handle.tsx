import { useEffect, useRef, useState } from 'preact/hooks';
import type { ThresholdLine } from '../../sandbox/live/sandbox-events.ts';
import type { ChartFrame } from '../parts/chart.tsx';
import { valueText } from './text.ts';

/** Delay after the final key press until the threshold is set. */
const KEYS_REST_MS = 500;

interface HandleProps {
  line: ThresholdLine;
  /** Level in the unit of the values. */
  level: number;
  frame: ChartFrame;
  /** Called when dragging starts or ends. */
  hold(isHeld: boolean): void;
  /** Sets the threshold and returns whether the request succeeded. */
  move(level: number): Promise<boolean>;
}

/** A threshold as a vertical slider across the chart. The threshold is set when the slider is released. */
export function ThresholdHandle({ line, level, frame, hold, move }: HandleProps) {
  const [draft, setDraft] = useState<number>();
  const drafted = useRef<number | undefined>(undefined);
  const timer = useRef(0);
  const { threshold } = line;
  // The sandbox has confirmed the threshold.
  useEffect(() => setDraft(undefined), [threshold]);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const { range, top, height, left, width } = frame;
  const [low, high] = range;
  const step = stepOf(range);
  const shown = draft ?? level;
  const follow = (to: number) => {
    drafted.current = to;
    setDraft(to);
  };
  const settle = () => {
    hold(false);
    const to = drafted.current;
    drafted.current = undefined;
    if (to === undefined || to === level) return setDraft(undefined);
    void move(to).then((isDone) => isDone || setDraft(undefined));
  };
  const atPointer = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).parentElement!.getBoundingClientRect();
    const part = 1 - (event.clientY - box.top - top) / height;
    return onStep(low + Math.min(1, Math.max(0, part)) * (high - low), step);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const to = movedBy(event.key, drafted.current ?? shown, step, range);
    if (to === undefined) return;
    event.preventDefault();
    hold(true);
    follow(to);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(settle, KEYS_REST_MS);
  };
  const y = top + height * (1 - (shown - low) / (high - low));
  return (
    <div
      class={`threshold ${threshold.type}`}
      role="slider"
      tabIndex={0}
      aria-orientation="vertical"
      aria-label={threshold.name}
      aria-valuemin={Number(low.toPrecision(6))}
      aria-valuemax={Number(high.toPrecision(6))}
      aria-valuenow={shown}
      aria-valuetext={`${threshold.type} ${valueText(shown)}`}
      style={{ left: `${left}px`, width: `${width}px`, top: `${Math.min(top + height, Math.max(top, y))}px` }}
      onKeyDown={onKeyDown}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        hold(true);
      }}
      onPointerMove={(event) => {
        if (event.currentTarget.hasPointerCapture(event.pointerId)) follow(atPointer(event));
      }}
      onPointerUp={settle}
      onPointerCancel={() => {
        drafted.current = undefined;
        settle();
      }}
    >
      <span>
        {threshold.name} {valueText(shown)}
        {threshold.tolerance !== undefined && ` ± ${valueText(threshold.tolerance)}`}
      </span>
    </div>
  );
}

/** Step per key press: one hundredth of the range, rounded up to 1, 2 or 5 times a power of ten. */
function stepOf([low, high]: readonly [number, number]): number {
  const rough = (high - low) / 100;
  const power = 10 ** Math.floor(Math.log10(rough));
  return (([1, 2, 5].find((each) => each * power >= rough) ?? 10) as number) * power;
}

/** Rounds to a multiple of the step, without floating point noise. */
function onStep(value: number, step: number): number {
  return Number((Math.round(value / step) * step).toPrecision(12));
}

/** Returns the value after a key press; `undefined` for other keys. */
function movedBy(key: string, value: number, step: number, [low, high]: readonly [number, number]): number | undefined {
  const steps: Readonly<Record<string, number>> = {
    ...{ ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 10, PageDown: -10 },
  };
  if (Object.hasOwn(steps, key)) return onStep(value + steps[key]! * step, step);
  if (key === 'Home') return onStep(low, step);
  if (key === 'End') return onStep(high, step);
  return undefined;
}
