import { useMemo } from 'preact/hooks';
import { durationText } from '../base/amounts.ts';
import type { TagPoint, Views } from '../ops/live/views.ts';
import { Card, Fact } from './card.tsx';
import type { Gateway } from './gateway.ts';
import { Chart, type ChartLine } from './parts/chart.tsx';
import { Shape } from './parts/shape.tsx';
import { addressOf } from './place.ts';
import { usePoll } from './poll.ts';
import { PollState } from './poll-state.tsx';
import { numberText, readingText, unitText } from './reading-text.ts';
import { ageText, knownTag, STATE_SHAPES, stateText } from './tags-view.tsx';

const LINES: readonly ChartLine[] = [
  { label: 'latest', colour: '--line-1', text: numberText },
  { label: 'minimum', colour: '--line-3', text: numberText },
  { label: 'maximum', colour: '--line-3', text: numberText },
];

/** Maximum number of seconds in the chart. */
const POINTS = 3_600;

type Answer = Views['tag'];

/** Adds new readings to the previous ones. The latest second can be sent again with more readings. */
function merge(before: Answer | undefined, answer: Answer): Answer {
  const from = answer.points[0]?.[0] ?? Number.POSITIVE_INFINITY;
  const kept: TagPoint[] = answer.whole || !before ? [] : before.points.filter(([atMs]) => atMs < from);
  return { ...answer, points: [...kept, ...answer.points].slice(-POINTS) };
}

/** A tag with its raw and scaled readings, its source and its destination. The chart starts when the view is opened. */
export function TagView({ gateway, name }: { gateway: Gateway; name: string }) {
  const poll = usePoll<Answer>(`live/tag?of=${encodeURIComponent(name)}`, { merge });
  const points = poll.data?.points ?? [];
  const columns = useMemo(
    () => [
      points.map(([atMs]) => gateway.wallMs(atMs) / 1000),
      points.map(([, last]) => last),
      points.map(([, , low]) => low),
      points.map(([, , , high]) => high),
    ],
    [points],
  );
  if (!poll.data) {
    return (
      <>
        <AllTags />
        <PollState poll={poll} />
      </>
    );
  }
  const tag = knownTag(poll.data.row, poll.data.reading);
  const isScaled = tag.scale !== 1 || tag.offset !== 0;
  const [first] = points;
  return (
    <>
      <AllTags />
      <PollState poll={poll} />
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
          <Fact name="age">{ageText(gateway, tag)}</Fact>
          <Fact name="timestamp">{tag.timeAtMs === null ? 'arrival time' : gateway.time(tag.timeAtMs)}</Fact>
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
          <Fact name="posted to">{poll.data.path}</Fact>
        </Card>
      </div>
      {points.length > 1 ? (
        <Chart
          title={`Last ${durationText((points.at(-1)![0] - first![0]) / 1000)} (at most one hour)`}
          lines={LINES}
          columns={columns}
          bands={[[3, 2]]}
          height={260}
          time={(atMs) => gateway.time(atMs).slice(11)}
        />
      ) : (
        <p>Waiting for readings. The chart requires at least two.</p>
      )}
    </>
  );
}

function AllTags() {
  return (
    <p>
      <a href={addressOf('tags')}>All tags</a>
    </p>
  );
}
