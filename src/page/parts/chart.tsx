import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';

export interface ChartLine {
  label: string;
  /** Custom CSS property with a colour for light and dark mode. */
  colour: '--line-1' | '--line-2' | '--line-3';
  text(value: number): string;
}

export interface ChartProps {
  title: string;
  lines: readonly ChartLine[];
  /** Ascending times in seconds since 1970, then one column per line. */
  columns: readonly (readonly (number | null)[])[];
  /** Formats a time in milliseconds as `14:05:10`. */
  time(atMs: number): string;
  /** Shaded periods, in seconds. */
  shaded?: readonly (readonly [number, number])[];
  /** Meaning of the shading. */
  shadedLabel?: string;
  /** Pairs of columns with a filled area between them. */
  bands?: readonly (readonly [number, number])[];
  height?: number;
}

/** Lines over time; the caption contains the latest values. */
export function Chart(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const now = useRef(props);
  now.current = props;
  const kind = `${props.lines.map(({ label, colour }) => label + colour).join()} ${props.height}`;
  useEffect(() => {
    const element = place.current!;
    const dark = window.matchMedia('(prefers-color-scheme: dark)');
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(now, element), now.current.columns as uPlot.AlignedData, element);
    };
    make();
    const observer = new ResizeObserver(() =>
      plot.current?.setSize({ width: element.clientWidth, height: now.current.height ?? HEIGHT }),
    );
    observer.observe(element);
    dark.addEventListener('change', make);
    return () => {
      observer.disconnect();
      dark.removeEventListener('change', make);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [kind]);
  useEffect(() => plot.current?.setData(props.columns as uPlot.AlignedData), [props.columns]);
  return (
    <figure class="chart">
      <figcaption>
        <strong>{props.title}</strong>
        {props.lines.map((line, at) => (
          <span key={line.label}>
            <i class={`swatch ${line.colour.slice(2)}`} aria-hidden="true" /> {line.label}{' '}
            {lastText(line, props.columns[at + 1])}
          </span>
        ))}
        {props.shadedLabel && (props.shaded?.length ?? 0) > 0 && (
          <span>
            <i class="swatch shade" aria-hidden="true" /> {props.shadedLabel}
          </span>
        )}
      </figcaption>
      <div class="plot">
        <div ref={place} role="img" aria-label={`${props.title}, time series chart`} />
      </div>
    </figure>
  );
}

const HEIGHT = 150;

function lastText({ text }: ChartLine, column: readonly (number | null)[] | undefined): string {
  const last = column?.findLast((value) => value !== null);
  return last === undefined || last === null ? '' : text(last);
}

function optionsOf(now: { current: ChartProps }, element: HTMLElement): uPlot.Options {
  const colour = (name: string) => getComputedStyle(element).getPropertyValue(name).trim();
  const { lines, bands = [], height = HEIGHT } = now.current;
  const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  const timesOf = (seconds: number[]) => {
    const isShort = seconds.length > 1 && seconds[1]! - seconds[0]! < 60;
    return seconds.map((each) => now.current.time(each * 1000).slice(0, isShort ? 8 : 5));
  };
  return {
    width: element.clientWidth,
    height,
    cursor: { y: false, drag: { x: false, y: false } },
    legend: { show: false },
    scales: { x: { time: true }, y: { range: (_, low, high) => rangeOf(low, high) } },
    axes: [
      { ...axis, size: 28, values: (_, seconds) => timesOf(seconds) },
      { ...axis, size: 64, values: (_, values) => values.map((value) => lines[0]!.text(value)) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        width: 2,
        points: { show: false },
      })),
    ],
    bands: bands.map((band) => ({ series: [...band] as [number, number], fill: `${colour(lines[0]!.colour)}33` })),
    hooks: {
      drawClear: [
        (drawn) => {
          const { left, top, width, height: deep } = drawn.bbox;
          drawn.ctx.fillStyle = colour('--shade');
          for (const [from, to] of now.current.shaded ?? []) {
            const [begin, end] = [drawn.valToPos(from, 'x', true), drawn.valToPos(to, 'x', true)];
            const first = Math.max(left, begin);
            drawn.ctx.fillRect(first, top, Math.max(0, Math.min(left + width, end) - first), deep);
          }
        },
      ],
    },
  };
}

/** Adds a margin; a constant line is centred. */
function rangeOf(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const room = (high - low) * 0.1 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}
