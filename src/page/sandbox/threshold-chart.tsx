import { useMemo, useRef, useState } from 'preact/hooks';
import type { ThresholdLine } from '../../sandbox/live/sandbox-events.ts';
import { Chart, type ChartFrame } from '../parts/chart.tsx';
import type { Chosen, Model } from './model.ts';
import { timeText, valueText } from './text.ts';
import { ThresholdHandle } from './threshold-handle.tsx';

/** Maximum period shown in the chart. */
const WINDOW_MS = 600_000;

/** Values of the selected series, and its thresholds, which can be moved. */
export function ThresholdChart({ model, title, chosen }: { model: Model; title: string; chosen: Chosen }) {
  const [frame, setFrame] = useState<ChartFrame>();
  const lines = model.chart?.thresholds.filter(({ scaling }) => scaling !== undefined) ?? [];
  const levels = lines.map(levelOf);
  /** The range of the axis is fixed while a threshold is dragged. */
  const held = useRef<readonly [number, number] | undefined>(undefined);
  // Redraw after each value or threshold change, so that all thresholds are visible.
  const columns = useMemo(() => columnsOf(model.points), [model.points, levels.join()]);
  const unit = model.site?.units[model.lineOf(chosen)?.last?.unit ?? ''] ?? '';
  const hold = (isHeld: boolean) => {
    held.current = isHeld ? frame?.range : undefined;
  };
  const move = ({ threshold, scaling }: ThresholdLine, level: number) => {
    const { scale, shift } = scaling!;
    return model.act('POST', 'thresholds', { ...threshold, value: rounded(level * scale + shift) });
  };
  return (
    <Chart
      title={title}
      lines={[{ label: chosen.key, colour: '--line-1', text: (value) => `${valueText(value)} ${unit}` }]}
      columns={columns}
      time={timeText}
      height={260}
      range={(low, high) => held.current ?? rangeOf(low, high, levels)}
      framed={setFrame}
    >
      {frame &&
        lines.map((line, at) => (
          <ThresholdHandle
            key={line.threshold.id}
            line={line}
            level={levels[at]!}
            frame={frame}
            hold={hold}
            move={(level) => move(line, level)}
          />
        ))}
    </Chart>
  );
}

/** Returns the threshold level in the unit of the values. */
function levelOf({ threshold, scaling }: ThresholdLine): number {
  const { scale, shift } = scaling!;
  return rounded((threshold.value - shift) / scale);
}

function rounded(value: number): number {
  return Number(value.toPrecision(12));
}

/** Returns the times, in seconds, and the values in the period. */
function columnsOf(points: ReadonlyMap<number, number>): number[][] {
  const newestMs = [...points.keys()].at(-1) ?? 0;
  const shown = [...points].filter(([atMs]) => atMs >= newestMs - WINDOW_MS);
  return [shown.map(([atMs]) => atMs / 1000), shown.map(([, value]) => value)];
}

/** Returns the range of values and thresholds with a margin. */
function rangeOf(low: number | null, high: number | null, levels: readonly number[]): [number, number] {
  const known = [low, high, ...levels].filter((each) => each !== null);
  if (known.length === 0) return [0, 1];
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const air = (most - least) * 0.15 || Math.abs(most) * 0.15 || 1;
  return [least - air, most + air];
}
