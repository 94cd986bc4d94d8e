import { useEffect, useRef, useState } from 'preact/hooks';
import type { ThresholdLine } from '../../sandbox/live/sandbox-events.ts';
import type { ChartFrame } from '../parts/chart.tsx';
import { valueText } from './text.ts';
import { movedBy, onStep, stepOf } from './threshold-steps.ts';

/** After the last key it is meant. */
const KEYS_REST_MS = 500;

interface HandleProps {
  line: ThresholdLine;
  /** Where it stands, in the unit of the values. */
  level: number;
  frame: ChartFrame;
  /** It is held, or let go: the scale stays as it is meanwhile. */
  hold(isHeld: boolean): void;
  /** Gives whether it was done. */
  move(level: number): Promise<boolean>;
}

/** The line of a threshold across the chart: a slider, up and down. What is meant is asked for when it is let go. */
export function ThresholdHandle({ line, level, frame, hold, move }: HandleProps) {
  const [draft, setDraft] = useState<number>();
  const drafted = useRef<number | undefined>(undefined);
  const timer = useRef(0);
  const { threshold } = line;
  // It is where the sandbox says, once that has heard of it.
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
