import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import { counted } from '../base/amounts.ts';
import type { Views } from '../ops/live/views.ts';
import type { Gateway } from './gateway.ts';
import { Copyable } from './parts/copyable.tsx';
import { Shape } from './parts/shape.tsx';
import { request, TokenContext } from './poll.ts';
import { TokenRequired } from './poll-state.tsx';

type Found = { kind: 'none' | 'running' } | { kind: 'over'; report: Views['doctor'] } | { kind: 'failed'; why: string };

/** Maximum time of the checks, in milliseconds. */
const RUN_MS = 90_000;

/** Runs the checks of `tagferry doctor --inward`, without requests to other machines. */
export function DoctorView({ gateway }: { gateway: Gateway }) {
  const [found, setFound] = useState<Found>({ kind: 'none' });
  const token = useContext(TokenContext);
  const left = useRef(new AbortController());
  useEffect(() => () => left.current.abort(), []);
  if (gateway.sight === 'status') return <TokenRequired what="Check results" />;
  const run = async () => {
    setFound({ kind: 'running' });
    const result = await request('live/doctor', token, left.current.signal, RUN_MS);
    if (left.current.signal.aborted) return;
    if ('body' in result) setFound({ kind: 'over', report: result.body as Views['doctor'] });
    else setFound({ kind: 'failed', why: 'refusal' in result ? result.refusal.error : result.problem });
  };
  return (
    <>
      <div class="tools">
        <button type="button" disabled={found.kind === 'running'} onClick={() => void run()}>
          {found.kind === 'none' ? 'Run checks' : 'Run checks again'}
        </button>
        <p role="status">
          {found.kind === 'running' && 'Running checks…'}
          {found.kind === 'failed' && `Failed to run checks: ${found.why}`}
          {found.kind === 'over' && summary(found.report, gateway)}
        </p>
      </div>
      <p>
        These checks are limited to this machine. To check the platform, the network and devices, run{' '}
        <Copyable text="sudo tagferry doctor" />
      </p>
      {found.kind === 'over' && (
        <ul class="stack">
          {found.report.checks.map((line, at) => (
            <li key={`${line.check} ${at}`} class={`check ${line.state}`}>
              <p>
                <strong>
                  <Shape name={line.state} /> {line.state}
                </strong>{' '}
                <code>{line.check}</code> {line.message}
              </p>
              {line.next !== '' && <p>{line.next}</p>}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function summary({ checks, atMs }: Views['doctor'], { time }: Gateway): string {
  const of = (state: string) => checks.filter((line) => line.state === state).length;
  return `${counted(of('failure'), 'failure')}, ${counted(of('warning'), 'warning')}, ${of('ok')} ok at ${time(atMs)}`;
}
