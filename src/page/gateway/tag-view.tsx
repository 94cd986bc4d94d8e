import { useMemo } from 'preact/hooks';
import { durationText } from '../../base/amounts.ts';
import { Chart, type ChartLine } from '../parts/chart.tsx';
import { Shape } from '../parts/shape.tsx';
import { Card, Fact } from './card.tsx';
import type { KnownTag } from './known-tags.ts';
import type { Model } from './model.ts';
import { addressOf } from './place.ts';
import { numberText, readingText, unitText } from './reading-text.ts';
import { ageText, STATE_SHAPES, stateText } from './tags-view.tsx';

const LINES: readonly ChartLine[] = [
  { label: 'latest', colour: '--line-1', text: numberText },
  { label: 'minimum', colour: '--line-3', text: numberText },
  { label: 'maximum', colour: '--line-3', text: numberText },
];

/** A tag with its raw and scaled readings, its source and its destination. The chart starts when the view is opened. */
export function TagView({ model, tag }: { model: Model; tag: KnownTag }) {
  const { trace } = model;
  const points = trace.row === tag.row ? trace.points : [];
  const columns = useMemo(
    () => [
      points.map(([atMs]) => model.wallMs(atMs) / 1000),
      points.map(([, last]) => last),
      points.map(([, , low]) => low),
      points.map(([, , , high]) => high),
    ],
    [points],
  );
  const isScaled = tag.scale !== 1 || tag.offset !== 0;
  const [first] = points;
  return (
    <>
      <p>
        <a href={addressOf('tags')}>All tags</a>
      </p>
      <div class="cards">
        <Card title={`${tag.tag} ${tag.key}`}>
          <Fact name="reading">{readingText(tag)}</Fact>
          {tag.raw !== null && <Fact name="raw">{numberText(tag.raw)}</Fact>}
          {isScaled && (
            <Fact name="value =">
              raw × {tag.scale}
              {tag.offset !== 0 && ` ${tag.offset < 0 ? '−' : '+'} ${Math.abs(tag.offset)}`}
            </Fact>
          )}
          <Fact name="age">{ageText(model, tag)}</Fact>
          <Fact name="timestamp">{tag.timeAtMs === null ? 'arrival time' : model.time(tag.timeAtMs)}</Fact>
          <Fact name="state" bad={tag.state !== 'live'}>
            <Shape name={STATE_SHAPES[tag.state]} /> {stateText(tag.state)}
          </Fact>
        </Card>
        <Card title="Source and destination">
          <Fact name="source">{tag.source === null ? 'pushed by programs' : `${tag.source} (${tag.kind})`}</Fact>
          <Fact name="asset">{tag.asset}</Fact>
          {tag.instrumentation !== null && <Fact name="instrumentation">{tag.instrumentation}</Fact>}
          <Fact name="key">{tag.key}</Fact>
          {tag.group !== null && <Fact name="group">{tag.group}</Fact>}
          {tag.unit !== '' && <Fact name="unit">{unitText(tag.unit)}</Fact>}
          {trace.row === tag.row && <Fact name="posted to">{trace.path}</Fact>}
        </Card>
      </div>
      {points.length > 1 ? (
        <Chart
          title={`Last ${durationText((points.at(-1)![0] - first![0]) / 1000)} (at most one hour)`}
          lines={LINES}
          columns={columns}
          bands={[[3, 2]]}
          height={260}
          time={(atMs) => model.time(atMs).slice(11)}
        />
      ) : (
        <p>Waiting for readings. The chart requires at least two.</p>
      )}
    </>
  );
}
