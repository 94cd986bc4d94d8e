import { counted, countText, durationText } from '../base/amounts.ts';
import type { Views } from '../ops/live/views.ts';
import type { StatusReport } from '../ops/status-report.ts';
import { failuresOf } from './failure.ts';
import type { Gateway } from './gateway.ts';
import { Copyable } from './parts/copyable.tsx';
import { Shape } from './parts/shape.tsx';
import { usePoll } from './poll.ts';
import { PollState } from './poll-state.tsx';

/** Held objects, and series and values that the platform rejected, with the platform's responses. */
export function HeldView({ gateway, now }: { gateway: Gateway; now: StatusReport }) {
  const refused = failuresOf(now).filter(({ id }) => id.startsWith('series '));
  const poll = usePoll<Views['held']>('live/held');
  const quarantine = poll.data?.quarantine ?? [];
  return (
    <div class="stack">
      <h3>Held: {now.holds.length === 0 ? 'none' : counted(now.holds.length, 'object')}</h3>
      {now.holds.map((hold) => (
        <article key={`${hold.kind} ${hold.id}`}>
          <h4>
            <Shape name="held" /> {hold.kind} {hold.id}
            {hold.tags.length > 0 && `: ${hold.tags.join(', ')}`}
          </h4>
          <p class="words">{String(hold.cause).replaceAll('_', ' ')}</p>
          <p>
            since {gateway.time(Date.parse(hold.since))}
            {hold.next_probe_in_seconds !== null && `, next attempt in ${durationText(hold.next_probe_in_seconds)}`}
          </p>
        </article>
      ))}
      {now.lost_nodes.map(({ node, since }) => (
        <p key={node}>
          node {node} missing since {gateway.time(Date.parse(since))}
        </p>
      ))}
      <h3>Rejected series: {refused.length === 0 ? 'none' : countText(refused.length)}</h3>
      {refused.map(({ id, title, words, hint, command }) => (
        <article key={id}>
          <h4>
            <Shape name="refused" /> {title}
          </h4>
          <p class="words">{words}</p>
          {hint && <p>{hint}</p>}
          {command && <Copyable text={command} />}
        </article>
      ))}
      <h3>Quarantine: {now.buffer.quarantined === 0 ? 'empty' : counted(now.buffer.quarantined, 'value')}</h3>
      {quarantine.length > 0 && <Copyable text="tagferry buffer requeue" />}
      {quarantine.map((line, at) => (
        <article key={`${line.name} ${line.refusedAtMs} ${at}`}>
          <h4>
            <Shape name="warning" /> {line.name}: {counted(line.values, 'value')}, rejected with {line.status}
          </h4>
          <p class="words">{line.message}</p>
          <p>
            rejected at {gateway.time(line.refusedAtMs)}
            {line.first.map(({ timeAtMs, value }) => `; value ${value} at ${gateway.time(timeAtMs)}`).join('')}
          </p>
        </article>
      ))}
      <PollState poll={poll} />
      {poll.data?.isMore && <p>To see more values, run tagferry buffer quarantine.</p>}
    </div>
  );
}
