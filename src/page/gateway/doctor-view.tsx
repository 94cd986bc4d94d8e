import { useState } from 'preact/hooks';
import { counted } from '../../base/amounts.ts';
import type { DoctorReport } from '../../ops/live/doctor-run.ts';
import { Copyable } from '../parts/copyable.tsx';
import { Shape } from '../parts/shape.tsx';
import type { Model } from './model.ts';
import { TokenRequired } from './token-required.tsx';

type Found = { kind: 'none' | 'running' } | { kind: 'over'; report: DoctorReport } | { kind: 'failed'; why: string };

/** Runs the checks of `tagferry doctor --inward`, without requests to other machines. */
export function DoctorView({ model }: { model: Model }) {
  const [found, setFound] = useState<Found>({ kind: 'none' });
  if (model.hello?.sight === 'status') return <TokenRequired what="Check results" />;
  const run = async () => {
    setFound({ kind: 'running' });
    try {
      const response = await model.fetch('live/doctor');
      const body = (await response.json()) as DoctorReport & { error?: string };
      const why = body.error ?? `${response.status}`;
      setFound(response.ok ? { kind: 'over', report: body } : { kind: 'failed', why });
    } catch (error) {
      setFound({ kind: 'failed', why: String(error) });
    }
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
          {found.kind === 'over' && summary(found.report, model)}
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

function summary({ checks, atMs }: DoctorReport, { time }: Model): string {
  const of = (state: string) => checks.filter((line) => line.state === state).length;
  return `${counted(of('failure'), 'failure')}, ${counted(of('warning'), 'warning')}, ${of('ok')} ok at ${time(atMs)}`;
}
