import { useState } from 'preact/hooks';
import { counted } from '../../base/amounts.ts';
import type { DoctorReport } from '../../ops/live/doctor-run.ts';
import { Copyable } from '../parts/copyable.tsx';
import { Shape } from '../parts/shape.tsx';
import type { Model } from './model.ts';
import { WantsToken } from './wants-token.tsx';

type Found = { kind: 'none' | 'running' } | { kind: 'over'; report: DoctorReport } | { kind: 'failed'; why: string };

/** Looks through the installation as `tagferry doctor` does, without a word to anybody outside this machine. */
export function DoctorView({ model }: { model: Model }) {
  const [found, setFound] = useState<Found>({ kind: 'none' });
  if (model.hello?.sight === 'status') return <WantsToken what="What the doctor finds" />;
  const run = async () => {
    setFound({ kind: 'running' });
    try {
      const answer = await model.fetch('live/doctor');
      const body = (await answer.json()) as DoctorReport & { error?: string };
      setFound(answer.ok ? { kind: 'over', report: body } : { kind: 'failed', why: body.error ?? `${answer.status}` });
    } catch (error) {
      setFound({ kind: 'failed', why: String(error) });
    }
  };
  return (
    <>
      <div class="tools">
        <button type="button" disabled={found.kind === 'running'} onClick={() => void run()}>
          {found.kind === 'none' ? 'Look through the installation' : 'Look again'}
        </button>
        <p role="status">
          {found.kind === 'running' && 'It looks…'}
          {found.kind === 'failed' && `It could not look: ${found.why}`}
          {found.kind === 'over' && summary(found.report, model)}
        </p>
      </div>
      <p>
        It asks nobody outside this machine. What the platform, the network and the devices say is asked by{' '}
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
  return `${counted(of('failure'), 'failure')}, ${counted(of('warning'), 'warning')}, ${of('ok')} ok, at ${time(atMs)}`;
}
