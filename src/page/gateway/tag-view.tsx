import { useMemo } from 'preact/hooks';
import { durationText } from '../../base/amounts.ts';
import { Chart, type ChartLine } from '../parts/chart.tsx';
import { Shape } from '../parts/shape.tsx';
import { Card, Fact } from './card.tsx';
import type { KnownTag } from './known-tags.ts';
import type { Model } from './model.ts';
import { addressOf } from './place.ts';
import { numberText, readingText } from './reading-text.ts';
import { ageText, STATE_SHAPES } from './tags-view.tsx';

const LINES: readonly ChartLine[] = [
  { label: 'last', colour: '--line-1', text: numberText },
  { label: 'least', colour: '--line-3', text: numberText },
  { label: 'greatest', colour: '--line-3', text: numberText },
];

/** One tag: its last hour, as far as somebody looked, its raw reading beside the scaled one, and where it goes. */
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
        <a href={addressOf('tags')}>all tags</a>
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
          <Fact name="read">{ageText(model, tag)}</Fact>
          <Fact name="its time">{tag.timeAtMs === null ? 'that of its arrival' : model.time(tag.timeAtMs)}</Fact>
          <Fact name="state" bad={tag.state !== 'live'}>
            <Shape name={STATE_SHAPES[tag.state]} /> {tag.state}
          </Fact>
        </Card>
        <Card title="Where it comes from and goes">
          <Fact name="from">{tag.source === null ? 'programs push it' : `${tag.source} (${tag.kind})`}</Fact>
          <Fact name="asset">{tag.asset}</Fact>
          {tag.instrumentation !== null && <Fact name="instrumentation">{tag.instrumentation}</Fact>}
          <Fact name="key">{tag.key}</Fact>
          {tag.group !== null && <Fact name="group">{tag.group}</Fact>}
          {tag.unit !== '' && <Fact name="unit">{tag.unit}</Fact>}
          {trace.row === tag.row && <Fact name="posted to">{trace.path}</Fact>}
        </Card>
      </div>
      {points.length > 1 ? (
        <Chart
          title={`Kept since somebody looked, ${durationText((points.at(-1)![0] - first![0]) / 1000)}, an hour at most`}
          lines={LINES}
          columns={columns}
          bands={[[3, 2]]}
          height={260}
          time={(atMs) => model.time(atMs).slice(11)}
        />
      ) : (
        <p>Its readings are kept from now on, while somebody looks; the chart begins with the second one.</p>
      )}
    </>
  );
}
