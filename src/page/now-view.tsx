import { bytesText, counted, countText, durationText } from '../base/amounts.ts';
import { identityText } from '../config/configuration-report.ts';
import type { StatusReport } from '../ops/status-report.ts';
import { Card, Fact } from './card.tsx';
import { failuresOf } from './failure.ts';
import type { Gateway } from './gateway.ts';
import { Copyable } from './parts/copyable.tsx';
import { Shape } from './parts/shape.tsx';
import { waitsOf } from './waits.ts';

export function NowView({ gateway, now }: { gateway: Gateway; now: StatusReport }) {
  return (
    <>
      <Failures now={now} />
      <div class="cards">
        <SessionCard gateway={gateway} now={now} />
        <ValuesCard now={now} />
        <BufferCard now={now} />
        <PostsCard gateway={gateway} now={now} />
        <RequestsCard now={now} />
        <WaitsCard now={now} />
        <GatewayCard gateway={gateway} now={now} />
      </div>
    </>
  );
}

function Failures({ now }: { now: StatusReport }) {
  const failures = failuresOf(now);
  return (
    <section class="failures" aria-label="Problems">
      {failures.length === 0 && (
        <p class="good">
          <Shape name="ok" /> No problems.
        </p>
      )}
      {failures.map((failure) => (
        <article key={failure.id}>
          <h3>
            <Shape name="warning" /> {failure.title}
          </h3>
          <p class="words">{failure.words}</p>
          {failure.hint && <p>{failure.hint}</p>}
          {failure.command && <Copyable text={failure.command} />}
        </article>
      ))}
    </section>
  );
}

const GRANTS: Readonly<Record<string, string>> = { password: 'password', refresh_token: 'refresh token' };

function SessionCard({ gateway, now: { session } }: { gateway: Gateway; now: StatusReport }) {
  const { expires_in_seconds: left, renews_in_seconds: renews, retry_in_seconds: retry } = session;
  return (
    <Card title="Session">
      <Fact name="state" bad={!session.usable}>
        {session.state}
      </Fact>
      {session.grant && <Fact name="grant">{GRANTS[session.grant] ?? session.grant}</Fact>}
      {left !== undefined && (
        <Fact name="valid until">
          {gateway.time(gateway.nowMs() + left * 1000)} ({durationText(left)})
        </Fact>
      )}
      {renews !== undefined && <Fact name="renews in">{durationText(renews)}</Fact>}
      {retry !== undefined && <Fact name="next attempt in">{durationText(retry)}</Fact>}
    </Card>
  );
}

function ValuesCard({ now: { rates, tags, sources } }: { now: StatusReport }) {
  const connected = sources.filter((source) => source.connected !== false && !source.silent).length;
  return (
    <Card title="Values">
      <Fact name="ingested">{countText(rates.ingested_per_minute)} per minute</Fact>
      <Fact name="delivered">{countText(rates.delivered_per_minute)} per minute</Fact>
      <Fact name="configured">{counted(tags, 'tag')}</Fact>
      {sources.length > 0 && (
        <Fact name="active sources" bad={connected < sources.length}>
          {connected} of {sources.length}
        </Fact>
      )}
    </Card>
  );
}

function BufferCard({ now: { buffer, rates, uplink } }: { now: StatusReport }) {
  const drained = rates.drained_in_seconds;
  return (
    <Card title="Buffer">
      <Fact name="values">{countText(buffer.values)}</Fact>
      <Fact name="live, backlog">
        {countText(buffer.live)}, {countText(buffer.backlog)}
      </Fact>
      <Fact name="on disk">{bytesText(buffer.bytes)}</Fact>
      {buffer.max_bytes > 0 && <Fact name="limit">{bytesText(buffer.max_bytes)}</Fact>}
      <Fact name="free on disk">{bytesText(buffer.free_bytes)}</Fact>
      <Fact name="full" bad={buffer.lasts_seconds !== null && buffer.lasts_seconds < 86_400}>
        {buffer.lasts_seconds === null ? 'not growing' : `in about ${durationText(buffer.lasts_seconds)}`}
      </Fact>
      <Fact name="oldest">{buffer.values > 0 ? durationText(buffer.oldest_age_seconds) : 'none'}</Fact>
      {buffer.values > 0 && (
        <Fact name="drained" bad={drained === null}>
          {uplink.away
            ? 'after the outage'
            : drained === null
              ? 'never at this rate'
              : drained === 0
                ? 'at the next post'
                : `in about ${durationText(drained)}`}
        </Fact>
      )}
      {buffer.waiting_for_commit > 0 && <Fact name="pending commit">{countText(buffer.waiting_for_commit)}</Fact>}
    </Card>
  );
}

function PostsCard({ gateway, now: { uplink } }: { gateway: Gateway; now: StatusReport }) {
  const ago = (seconds: number | null) => (seconds === null ? 'none yet' : `${durationText(seconds)} ago`);
  return (
    <Card title="Posts">
      <Fact name="latest post">{ago(uplink.last_post_seconds_ago)}</Fact>
      <Fact name="latest delivery">
        {ago(uplink.last_delivered_seconds_ago)}
        {uplink.last_delivered_at && ` (${gateway.time(Date.parse(uplink.last_delivered_at))})`}
      </Fact>
      <Fact name="delivered since startup">{counted(uplink.delivered_values, 'value')}</Fact>
      <Fact name="latest error">
        {uplink.last_error
          ? `${uplink.last_error.message} (${uplink.last_error.code}, ${uplink.last_error.at ? gateway.time(Date.parse(uplink.last_error.at)) : ''})`
          : 'none since startup'}
      </Fact>
      <Fact name="in progress">{countText(uplink.posts_under_way)}</Fact>
      <Fact name="interval per asset">{uplink.post_interval_seconds} s</Fact>
    </Card>
  );
}

function RequestsCard({ now: { requests } }: { now: StatusReport }) {
  const of = (limit: number) => (limit > 0 ? ` of ${countText(limit)}` : '');
  const { quota } = requests;
  return (
    <Card title="Requests">
      <Fact name="last minute">
        {countText(requests.minute)}
        {of(requests.minute_limit)}
      </Fact>
      {requests.share_reason !== 'configured' && (
        <Fact name={`limit (${requests.share_reason})`}>{requests.share} per minute</Fact>
      )}
      <Fact name="last 24 hours">
        {countText(requests.day)}
        {of(requests.day_limit)}
      </Fact>
      <Fact name="projected per day" bad={requests.day_limit > 0 && (requests.day_projected ?? 0) > requests.day_limit}>
        {requests.day_projected === null ? '-' : countText(requests.day_projected)}
      </Fact>
      {quota && (
        <Fact name="quota" bad={quota.used >= 0.9 * quota.calls}>
          {countText(quota.used)} of {countText(quota.calls)} ({Math.round((quota.used / quota.calls) * 100)} %)
        </Fact>
      )}
    </Card>
  );
}

function WaitsCard({ now }: { now: StatusReport }) {
  const waits = waitsOf(now);
  return (
    <Card title="Waiting for">
      {waits.length === 0 && <Fact name="nothing">posting continuously</Fact>}
      {waits.map(({ what, until }) => (
        <Fact key={what} name={what}>
          {until}
        </Fact>
      ))}
    </Card>
  );
}

function GatewayCard({ gateway, now }: { gateway: Gateway; now: StatusReport }) {
  return (
    <Card title="Gateway">
      <Fact name="uptime">{durationText(now.uptime_seconds)}</Fact>
      <Fact name="started">{gateway.time(Date.parse(now.started_at))}</Fact>
      <Fact name="platform">{now.platform}</Fact>
      <Fact name="webhook">{now.listener.webhook_url ?? 'none'}</Fact>
      <Fact name="configuration">{identityText(now.configuration)}</Fact>
    </Card>
  );
}
